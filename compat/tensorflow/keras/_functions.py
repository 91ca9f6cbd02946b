"""The functions that Keras's loops call for each step: they feed batches to the replicas and run the programs."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tfdist_jax import DATA, fused_mean
from tfdist_jax._input import ahead, pad_to_equal, put_padded
from tfdist_jax._replica import map_replicas
from tfdist_jax._runtime import InFlight
from tfdist_jax._state import entering
from tfdist_jax.compat.tensorflow._ops._random_state import drawing_from, next_words
from tfdist_jax.compat.tensorflow.keras._accumulation import accumulator_slots
from tfdist_jax.compat.tensorflow.keras._outside import CellFoundError, OutsideCells
from tfdist_jax.compat.tensorflow.keras._placement import Placed, Values, is_placed, place
from tfdist_jax.compat.tensorflow.keras._programs import Sizes, run_side_by_side, run_steps, runs_on_cpu
from tfdist_jax.compat.tensorflow.keras._steps import PredictStep, State, Step, TrainStep

# Steps that are compiled into one program on CPU, where they are unrolled and compile time grows with them.
_MOST_UNROLLED = 8
# Host batches on their way to an accelerator while it computes.
_AHEAD = 2


@final
class StepFunction:
    """Runs steps of a model under a strategy, called as Keras calls `train_function` and its like."""

    def __init__(self, step: Step, strategy: Any) -> None:
        """Prepare `step`; programs are compiled when the first batch of each shape arrives."""
        model = step.model
        self._step = step
        self._strategy = strategy
        self._mesh = strategy.native.mesh
        self._in_flight = InFlight(self._mesh.size)
        self._feed = Feed(self._mesh, ahead=0 if runs_on_cpu(strategy) else _AHEAD)
        self._steps_per_execution = model.steps_per_execution
        self._most_in_program = _most_in_program(step, strategy)
        self._returned: Placed = ()
        self._outside: list[Any] = []
        whole, split = NamedSharding(self._mesh, PartitionSpec()), NamedSharding(self._mesh, PartitionSpec(DATA))
        self._compiled = jax.jit(
            self._trace, static_argnums=0, donate_argnums=2, in_shardings=(whole, whole, split, whole)
        )
        self._program: Callable[..., Any] = self._run_eagerly if model.run_eagerly else self._compiled
        same = PartitionSpec()
        self._mean = jax.jit(map_replicas(fused_mean, self._mesh, in_specs=(same,), out_specs=same))

    def __call__(self, state: Any, iterator: Iterator[Any]) -> tuple[Any, Placed]:
        """Run the next `steps_per_execution` steps.

        Args:
            state: The model's values: what the last call returned, or what Keras has read from the variables.
            iterator: Host batches.

        Returns:
            The logs of the last step, or the predictions of all; and the new state.

        Raises:
            StopIteration: If `iterator` is at its end.
        """
        if not is_placed(state):
            state = place(state, self._mesh, num_read_only=self._step.num_read_only, holders=_holders(self._step.model))
        batches = list(itertools.islice(self._feed(iterator), self._steps_per_execution))
        if not batches:
            raise StopIteration
        results = []
        for sizes, run in _runs(batches, self._most_in_program):
            result, state = self._run(sizes, state, run)
            results.append(result)
        self._returned = state
        return (_joined(results) if isinstance(self._step, PredictStep) else results[-1]), state

    def lower(self, state: Any, batch: Any) -> Any:
        """Lower the step for a host batch without running it, as `jax.jit(fn).lower` does."""
        data, sizes = pad_to_equal(batch, self._mesh.shape[DATA])
        split = self._step.num_read_only
        arrays = [v.arrays for v in place(state, self._mesh, num_read_only=len(state), holders=Counter())]
        return self._call(self._compiled.lower, sizes, arrays[:split], arrays[split:], [data])

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
        if isinstance(self._step, TrainStep) and self._step.accumulates_locally:
            values = list(state["optimizer_variables"])
            slots = accumulator_slots(self._step.model.optimizer)
            for i, mean in zip(slots, self._mean([values[i] for i in slots]), strict=True):
                values[i] = mean
            state["optimizer_variables"] = values

    def _run(self, sizes: Sizes, state: Placed, batches: Sequence[Any]) -> tuple[Any, Placed]:
        split = self._step.num_read_only
        arrays = [values.arrays for values in state]
        logs, rows, new, token = self._call(self._program, sizes, arrays[:split], arrays[split:], batches)
        self._in_flight.add(token)
        state = (*state[:split], *map(Values, new))
        return (logs if rows is None else _without_padding(rows, sizes)), state

    def _call(self, program: Callable[..., Any], *args: Any) -> Any:
        """Call the program with what else it uses: random words, and outside variables, found while it is traced."""
        words = next_words()
        while True:
            try:
                return program(*args, (words, [self._strategy.mirrored(cell.stored) for cell in self._outside]))
            except CellFoundError as found:
                self._outside.append(found.cell)

    def _trace(self, sizes: Sizes, read_only: State, own: State, batches: Sequence[Any], others: Any) -> Any:
        words, outside = others
        with drawing_from(words), entering(OutsideCells(self._outside, outside)):
            logs, rows, state = run_steps(self._step, self._strategy, sizes, (*read_only, *own), batches)
        # The state is donated to the next step and logs may be empty: something must tell when the step is done.
        return logs, rows, state[len(read_only) :], jnp.zeros((), jnp.int32)

    def _run_eagerly(self, sizes: Sizes, read_only: State, own: State, batches: Sequence[Any], others: Any) -> Any:
        (batch,), (words, _) = batches, others
        with drawing_from(words):
            logs, rows, state = run_side_by_side(self._step, self._strategy, sizes, (*read_only, *own), batch)
        return logs, rows, state[len(read_only) :], ()


@final
class Feed:
    """Brings host batches to the replicas: on accelerators ahead of the steps that use them.

    On CPU (`ahead=0`) batches stay NumPy arrays until their step, which takes each device's rows from them.
    """

    def __init__(self, mesh: Mesh, *, ahead: int) -> None:
        """Feed the devices of `mesh`, with the transfers of `ahead` batches started early, or none before its step."""
        host = lambda batch: pad_to_equal(jax.tree.map(np.asarray, batch), mesh.shape[DATA])
        self._place = (lambda batch: put_padded(batch, mesh)) if ahead else host
        self._depth = ahead
        self._source: Any = None
        self._batches: Iterator[Any] = iter(())

    def __call__(self, source: Iterable[Any]) -> Iterator[Any]:
        """Return the batches of `source` as `(data, sizes)`; calls with the same source go on where it is."""
        if source is not self._source:
            self._source = source
            self._batches = ahead(source, self._place, depth=self._depth)
        return self._batches


def _holders(model: Any) -> Counter[int]:
    """Count the references to values, by id, that the model's own variables and loops hold."""
    functions = (model.train_function, model.test_function, model.predict_function)
    lists = [values for function in functions if isinstance(function, StepFunction) for values in function.returned]
    lists += (getattr(model, "_jax_state", None) or {}).values()
    different = {id(values): values for values in lists if isinstance(values, Values)}
    held = Counter(id(value) for values in different.values() for value in values)
    optimizer = getattr(model, "optimizer", None)  # Missing before `compile`.
    variables = itertools.chain(model.variables, model.metrics_variables, optimizer.variables if optimizer else ())
    held.update(id(variable.stored) for variable in variables)
    return held


def _most_in_program(step: Step, strategy: Any) -> int:
    """Return how many steps are compiled together: predictions join on the host, debugging goes one by one."""
    if isinstance(step, PredictStep) or step.model.run_eagerly:
        return 1
    wanted = step.model.steps_per_execution
    return min(wanted, _MOST_UNROLLED) if runs_on_cpu(strategy) else wanted


def _runs(batches: Sequence[tuple[Any, Sizes]], most: int) -> Iterator[tuple[Sizes, list[Any]]]:
    """Group batches that one program can take: `most` at a time of equal shapes, the others one by one."""
    if most == 1:
        yield from ((sizes, [data]) for data, sizes in batches)
        return
    for sizes, alike in itertools.groupby(batches, key=_shapes):
        run = [data for data, _ in alike]
        whole = len(run) - len(run) % most
        yield from ((sizes[0], run[i : i + most]) for i in range(0, whole, most))
        yield from ((sizes[0], [data]) for data in run[whole:])


def _shapes(batch: tuple[Any, Sizes]) -> Any:
    data, sizes = batch
    leaves, tree = jax.tree.flatten(data)
    return sizes, tree, [(leaf.shape, leaf.dtype) for leaf in leaves]


def _without_padding(rows: Any, sizes: Sizes) -> Any:
    """Return the real rows, which come first; on the devices where nothing has to be cut off."""
    if len(set(sizes)) == 1:
        return rows
    return jax.tree.map(lambda leaf: np.asarray(leaf)[: sum(sizes)], rows)


def _joined(results: Sequence[Any]) -> Any:
    if len(results) == 1:
        return results[0]
    return jax.tree.map(lambda *rows: np.concatenate(rows), *results)
