"""The functions that Keras's loops call for each step: they feed batches to the replicas and run the programs."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.experimental.sparse import JAXSparse
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tfdist_jax import PerReplica, fused_mean
from tfdist_jax._multiprocess._agreed_program import jit_with_agreement
from tfdist_jax._multiprocess._shared_input import equal_sizes, shards_of_global_batches
from tfdist_jax._runtime import InFlight, reuses_memory, runs_on_cpu
from tfdist_jax._sharding._collectives import map_replicas
from tfdist_jax._sharding._input import pad_to_equal, prefetch
from tfdist_jax._sharding._mesh import num_replicas
from tfdist_jax._sharding._placement import local, put_own, spans_processes
from tfdist_jax._stateful._state import entering
from tfdist_jax.compat.tensorflow._tensors._ordered import restore_dict_order
from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy
from tfdist_jax.compat.tensorflow.keras._training._accumulation import accumulator_slots
from tfdist_jax.compat.tensorflow.keras._training._adapters import OwnRows
from tfdist_jax.compat.tensorflow.keras._training._external_variables import (
    ExternalVariables,
    UndeclaredOptimizerError,
    UndeclaredVariableReadError,
)
from tfdist_jax.compat.tensorflow.keras._training._placement import Placed, Values, is_placed, place
from tfdist_jax.compat.tensorflow.keras._training._programs import (
    SPLIT_STEPS,
    Sizes,
    run_side_by_side,
    run_steps,
    stacked,
)
from tfdist_jax.compat.tensorflow.keras._training._steps import PredictStep, State, Step, TrainStep
from tfdist_jax.compat.tensorflow.random._random_state import drawing_from, next_words

# Steps that are compiled into one program on CPU, where they are unrolled and compile time grows with them.
_MOST_UNROLLED = 8
# Host batches on their way to an accelerator while it computes.
_AHEAD = 2


# What Keras's loops hand to a step: all of it to `fit`'s, which are the only ones with an optimizer.
STATE_KINDS = ("trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables")


_HAS_TRAINED = "_tfdist_has_trained"


def note_training(model: keras.Model, *, has_begun: bool = True) -> None:
    """Note that `fit` has done a step, or not yet."""
    object.__setattr__(model, _HAS_TRAINED, has_begun)  # Past Keras's attribute tracking.


def note_step(model: keras.Model, state: Any) -> None:
    """Note that one of Keras's loops has done a step with this state: whether `fit` has."""
    if len(state) == len(STATE_KINDS):
        note_training(model)


def give_back(model: keras.Model, state: Any) -> None:
    """Hand the state to Keras's loop, which has taken it from the variables before it was known that there is no batch.

    Raises:
        ValueError: If there was nothing to train on at all.
    """
    trains = len(state) == len(STATE_KINDS)
    kinds = STATE_KINDS if trains else [kind for kind in STATE_KINDS if kind != "optimizer_variables"]
    model._jax_state = dict(zip(kinds, state, strict=False))
    if trains and not getattr(model, _HAS_TRAINED, False):
        raise ValueError(
            "`fit` has got no batch of data. Look whether the arrays or the dataset are empty, and whether a generator or an "
            "iterator has been used up by an earlier call."
        )


@final
class StepFunction:
    """Runs steps of a model under a strategy, called as Keras calls `train_function` and its like."""

    def __init__(self, step: Step, strategy: Strategy) -> None:
        """Prepare `step`; programs are compiled when the first batch of each shape arrives."""
        model = step.model
        self._step = step
        self._strategy = strategy
        self._mesh = strategy.native.mesh
        self._in_flight = InFlight(self._mesh)
        depth = 0 if runs_on_cpu(strategy.native.mesh) else _AHEAD
        self._feed = BatchFeeder(self._mesh, model.steps_per_execution, _most_in_program(step, strategy), ahead=depth)
        self._returned: Placed = ()
        self._outside: list[Any] = []
        whole, split = NamedSharding(self._mesh, PartitionSpec()), NamedSharding(self._mesh, SPLIT_STEPS)
        layouts = (whole, whole, split, whole)
        is_donated = reuses_memory(self._mesh, [variable.stored for variable in _variables(model)])
        self._num_kept = step.num_read_only if is_donated else len(STATE_KINDS)
        donated = (2,) if is_donated else ()
        self._compiled = jit_with_agreement(
            self._trace, self._mesh, name=step.name, static_argnums=0, donate_argnums=donated, in_shardings=layouts
        )
        self._program: Callable[..., Any] = self._run_eagerly if model.run_eagerly else self._compiled
        same = PartitionSpec()
        self._mean = jit_with_agreement(
            map_replicas(fused_mean, self._mesh, in_specs=(same,), out_specs=same), self._mesh
        )

    def __call__(self, state: Any, iterator: Iterator[Any]) -> tuple[Any, Placed]:
        """Run the next `steps_per_execution` steps.

        Args:
            state: The model's values: what the last call returned, or what Keras has read from the variables.
            iterator: Host batches.

        Returns:
            The logs of the last step, or the predictions of all; and the new state.

        Raises:
            StopIteration: If `iterator` is at its end.
            ValueError: If it has nothing to train on at all.
        """
        try:
            runs = next(self._feed(iterator))
        except StopIteration:
            give_back(self._step.model, state)
            raise
        if not is_placed(state):
            state = place(state, self._mesh, num_kept=self._num_kept, holders=_holders(self._step.model))
        results = []
        for sizes, batches in runs:
            result, state = self._run(sizes, state, batches)
            results.append(result)
        self._returned = state
        note_step(self._step.model, state)
        return (restore_dict_order(_joined(results)) if isinstance(self._step, PredictStep) else results[-1]), state

    def lower(self, state: Any, batch: Any) -> Any:
        """Lower the step for a host batch without running it, as `jax.jit(fn).lower` does."""
        data, sizes = pad_to_equal(batch, num_replicas(self._mesh))
        split = self._step.num_read_only
        arrays = [v.arrays for v in place(state, self._mesh, num_kept=len(state), holders=Counter())]
        return self._call(self._compiled.lower, sizes, arrays[:split], arrays[split:], stacked([data]))

    def forget(self) -> None:
        """Let go of the state, when Keras's loop has ended."""
        self._returned = ()

    @property
    def returned(self) -> Placed:
        """The state that Keras's loop has got last and still holds."""
        return self._returned

    def settle(self, state: dict[str, Any]) -> None:
        """Make the state that Keras is about to read equal on all replicas, whose accumulated gradients differ.

        The mean stands for all of them and leaves the coming update as it is.
        """
        held = state.get("optimizer_variables")
        # What no step has returned is equal.
        if isinstance(self._step, TrainStep) and self._step.accumulates_locally and isinstance(held, Values):
            values = list(held)
            slots = [i for i in accumulator_slots(self._step.model.optimizer) if i is not None]
            for i, mean in zip(slots, self._mean([values[i] for i in slots]), strict=True):
                values[i] = mean
            state["optimizer_variables"] = values

    def _run(self, sizes: Sizes, state: Placed, batches: Any) -> tuple[Any, Placed]:
        split = self._step.num_read_only
        arrays = [values.arrays for values in state]
        logs, rows, new, carried, token = self._call(self._program, sizes, arrays[:split], arrays[split:], batches)
        self._in_flight.add(token)
        for variable, value in zip(self._step.carried, carried, strict=True):
            variable.stored = value
        state = (*state[:split], *map(Values, new))
        return (logs if rows is None else _without_padding(rows, sizes)), state

    def _call(self, program: Callable[..., Any], *args: Any) -> Any:
        """Call the program with what else it uses: random words, and outside variables, found while it is traced."""
        words = next_words()
        while True:
            try:
                return program(*args, (words, self._values(self._outside), self._values(self._step.carried)))
            except UndeclaredVariableReadError as found:
                self._outside.append(found.cell)
            except UndeclaredOptimizerError as found:
                self._step.carried.extend(found.variables)

    def _values(self, cells: Sequence[Any]) -> list[jax.Array]:
        return [self._strategy.mirrored(cell.stored) for cell in cells]

    def _trace(self, sizes: Sizes, read_only: State, own: State, batches: Any, others: Any) -> Any:
        words, outside, carried = others
        with drawing_from(words), entering(ExternalVariables(self._outside, outside)):
            given = _with_carried((*read_only, *own), carried)
            logs, rows, state = run_steps(self._step, self._strategy, sizes, given, batches)
        state, carried = _without_carried(state, len(carried))
        # The state may be donated to the next step and logs be empty: something must tell when the step is done.
        return logs, rows, state[len(read_only) :], carried, jnp.zeros((), jnp.int32)

    def _run_eagerly(self, sizes: Sizes, read_only: State, own: State, batches: Any, others: Any) -> Any:
        batch, (words, _, carried) = jax.tree.map(lambda leaf: leaf[0], batches), others
        with drawing_from(words):
            given = _with_carried((*read_only, *own), carried)
            logs, rows, state = run_side_by_side(self._step, self._strategy, sizes, given, batch)
        state, carried = _without_carried(state, len(carried))
        return logs, rows, state[len(read_only) :], carried, ()


def _with_carried(state: State, values: list[jax.Array]) -> State:
    """Put other optimizers' values behind those of the model's optimizer."""
    return (*state[:2], [*state[2], *values], *state[3:]) if values else state


def _without_carried(state: State, count: int) -> tuple[State, list[jax.Array]]:
    if not count:
        return state, []
    return (*state[:2], state[2][:-count], *state[3:]), state[2][-count:]


Run = tuple[Sizes, Any]
"""Batches that one program takes, `[steps, rows, ...]`, and how each of them is split."""


@final
class BatchFeeder:
    """Brings host batches to the replicas: on accelerators ahead of the steps that use them.

    On CPU (`ahead=0`) batches stay NumPy arrays until their step, which takes each device's rows from them.
    """

    def __init__(self, mesh: Mesh, steps_per_execution: int, most: int, *, ahead: int) -> None:
        """BatchFeeder the devices of `mesh`.

        Args:
            mesh: The mesh of the strategy.
            steps_per_execution: How many batches a call of Keras's loop takes.
            most: How many of them one program takes.
            ahead: How many calls' transfers are started early.
        """
        self._steps, self._most = steps_per_execution, most
        self._mesh = mesh
        split = NamedSharding(mesh, SPLIT_STEPS)
        self._is_shared = spans_processes(mesh)
        transfer = put_own if self._is_shared else jax.device_put
        placed = lambda runs: [(sizes, transfer(batches, split)) for sizes, batches in runs]
        self._place = placed if ahead or self._is_shared else lambda runs: runs
        self._depth = ahead
        self._source: Any = None
        self._executions: Iterator[list[Run]] = iter(())

    def __call__(self, source: Iterable[Any]) -> Iterator[list[Run]]:
        """Return what is run in each call of Keras's loop; calls with the same source go on where it is."""
        if source is not self._source:
            self._source = source
            self._executions = prefetch(self._grouped(self._split(source)), self._place, depth=self._depth)
        return self._executions

    def _split(self, source: Iterable[Any]) -> Iterator[tuple[Any, Sizes]]:
        if not self._is_shared:
            return (pad_to_equal(_on_host(batch), num_replicas(self._mesh)) for batch in source)
        # A process may have no batch of its own at all, but then none has: shards of nothing come all the same.
        first = next(source := iter(source), None)
        rest = () if first is None else itertools.chain([first], source)
        if isinstance(next(iter(jax.tree.leaves(first)), None), OwnRows):
            return ((_on_host(batch), jax.tree.leaves(batch)[0].sizes) for batch in rest)
        shards = shards_of_global_batches((_on_host(batch) for batch in rest), self._mesh)
        return ((batch, equal_sizes(sizes)) for batch, sizes in shards)

    def _grouped(self, batches: Iterator[tuple[Any, Sizes]]) -> Iterator[list[Run]]:
        if self._steps == 1:
            yield from ([(sizes, stacked([data]))] for data, sizes in batches)
        while taken := list(itertools.islice(batches, self._steps)):
            yield list(_runs(taken, self._steps, self._most))


def _on_host(batch: Any) -> Any:
    """Return a batch as NumPy arrays."""
    return jax.tree.map(_array, batch, is_leaf=lambda leaf: isinstance(leaf, JAXSparse | PerReplica))


def _array(leaf: Any) -> np.ndarray:
    if isinstance(leaf, PerReplica):
        return np.concatenate([np.asarray(value) for value in leaf.values])
    # The parts of a sparse array have no rows to split.
    return np.asarray(leaf.todense() if isinstance(leaf, JAXSparse) else leaf)


def _holders(model: keras.Model) -> Counter[int]:
    """Count the references to values, by id, that the model's own variables and loops hold."""
    functions: tuple[Any, ...] = (model.train_function, model.test_function, model.predict_function)
    lists = [values for function in functions if isinstance(function, StepFunction) for values in function.returned]
    lists += (getattr(model, "_jax_state", None) or {}).values()
    different = {id(values): values for values in lists if isinstance(values, Values)}
    held = Counter(id(value) for values in different.values() for value in values)
    held.update(id(variable.stored) for variable in _variables(model))
    return held


def _variables(model: keras.Model) -> Iterator[Any]:
    optimizer = getattr(model, "optimizer", None)  # Missing before `compile`.
    return itertools.chain(model.variables, model.metrics_variables, optimizer.variables if optimizer else ())


def _most_in_program(step: Step, strategy: Strategy) -> int:
    """Return how many steps are compiled together: predictions join on the host, debugging goes one by one."""
    if isinstance(step, PredictStep) or step.model.run_eagerly:
        return 1
    wanted = step.model.steps_per_execution
    return min(wanted, _MOST_UNROLLED) if runs_on_cpu(strategy.native.mesh) else wanted


def _runs(batches: Sequence[tuple[Any, Sizes]], steps: int, most: int) -> Iterator[Run]:
    """Group batches that one program can take: neighbours of equal shapes."""
    for (sizes, *_), group in itertools.groupby(batches, key=_shapes):
        alike = [data for data, _ in group]
        start = 0
        for length in _run_lengths(len(alike), steps, most):
            yield sizes, stacked(alike[start : start + length])
            start += length


def _run_lengths(count: int, steps: int, most: int) -> list[int]:
    """Return in which runs to take `count` batches, with few different lengths: each is a program to compile."""
    parts = -(-steps // most)
    if count == steps:
        return [steps * (i + 1) // parts - steps * i // parts for i in range(parts)]
    length = -(-steps // parts)
    return [length] * (count // length) + [1] * (count % length)


def _shapes(batch: tuple[Any, Sizes]) -> Any:
    data, sizes = batch
    leaves, tree = jax.tree.flatten(data)
    return sizes, tree, [(leaf.shape, leaf.dtype) for leaf in leaves]


def _without_padding(rows: Any, sizes: Sizes) -> Any:
    """Return the real rows; on the devices where nothing has to be cut out."""
    if len(set(sizes)) == 1:
        return jax.tree.map(local, rows)
    length = max(sizes)

    def cut(leaf: jax.Array) -> np.ndarray:
        # A row may have several results.
        blocks = np.asarray(local(leaf)).reshape(len(sizes), length, -1, *leaf.shape[1:])
        return np.concatenate(
            [block[:size].reshape(-1, *leaf.shape[1:]) for block, size in zip(blocks, sizes, strict=True)]
        )

    return jax.tree.map(cut, rows)


def _joined(results: Sequence[Any]) -> Any:
    if len(results) == 1:
        return results[0]
    return jax.tree.map(lambda *rows: np.concatenate(rows), *results)
