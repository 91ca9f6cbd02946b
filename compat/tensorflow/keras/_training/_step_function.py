"""The functions that Keras's loops call for each step: they feed batches to the replicas and run the programs."""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, final

import jax
import keras
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from tfdist_jax import fused_mean
from tfdist_jax._coordinator import tracing_alone
from tfdist_jax._device_scope import current_device
from tfdist_jax._multiprocess._agreed_program import jit_with_agreement
from tfdist_jax._runtime import runs_on_cpu
from tfdist_jax._sharding._collectives import map_replicas
from tfdist_jax._sharding._input import pad_to_equal
from tfdist_jax._sharding._placement import local, replicated_sharding
from tfdist_jax._stateful._served_program import CellProgram, make_program
from tfdist_jax._stateful._state import CLOSURE_KIND, current_scope, load, store
from tfdist_jax._stateful._traffic_explanation import tell_traffic
from tfdist_jax.compat.tensorflow._tensors._ordered import restore_dict_order
from tfdist_jax.compat.tensorflow.distribute._parameter_server import ParameterServerStrategy
from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy
from tfdist_jax.compat.tensorflow.keras._training._accumulation import accumulator_slots
from tfdist_jax.compat.tensorflow.keras._training._batch_checks import BatchCheck, check_batch, find_checks
from tfdist_jax.compat.tensorflow.keras._training._batch_feeder import SPLIT_STEPS, BatchFeeder, stacked
from tfdist_jax.compat.tensorflow.keras._training._programs import run_on_worker, run_side_by_side, run_steps
from tfdist_jax.compat.tensorflow.keras._training._served_steps import ServedSteps
from tfdist_jax.compat.tensorflow.keras._training._steps import (
    TRAINED_KINDS,
    PredictStep,
    Sizes,
    Step,
    TrainStep,
    variables_of,
)
from tfdist_jax.compat.tensorflow.keras._training._text_front import with_front_values
from tfdist_jax.compat.tensorflow.random._random_state import drawing_from, next_words

# Steps that are compiled into one program on CPU, where they are unrolled and compile time grows with them.
_MOST_UNROLLED = 8
# Host batches on their way to an accelerator while it computes.
_AHEAD = 2
# Programs that a model keeps: one for each shape of batches.
_MOST_PROGRAMS = 128

Checked = tuple[CellProgram, list[BatchCheck]]
"""A program, and what is looked at in each batch before it runs."""

_HAS_TRAINED = "_tfdist_has_trained"
_SETTLE = "_tfdist_settle"


@final
class VariableIds(tuple[int, ...]):
    """Which variables of one kind there are: what Keras's loops hold in place of values, which stay in the variables.

    False, so that the loops find nothing to assign.
    """

    def __bool__(self) -> bool:
        """Look empty."""
        return False

    @classmethod
    def of(cls, model: keras.Model, kind: str) -> "VariableIds":
        """Return those of a model."""
        return cls(map(id, variables_of(model, kind)))


def note_training(model: keras.Model, *, has_begun: bool = True) -> None:
    """Note that `fit` has done a step, or not yet."""
    object.__setattr__(model, _HAS_TRAINED, has_begun)  # Past Keras's attribute tracking.


def require_batch(model: keras.Model) -> None:
    """Come where `fit` has no batch left.

    Raises:
        ValueError: If there was none at all.
    """
    if not getattr(model, _HAS_TRAINED, False):
        raise ValueError(
            "`fit` has got no batch of data. Look whether the arrays or the dataset are empty, and whether a generator or an "
            "iterator has been used up by an earlier call."
        )


def settle(model: keras.Model) -> None:
    """Make the accumulated gradients equal on all replicas, where they differ since a step has left them apart.

    The mean stands for all of them and leaves the coming update as it is.
    """
    model.__dict__.pop(_SETTLE, lambda: None)()


@final
class MetricReset:
    """A call with one batch, which may leave the reset of metrics before it to the program of its step: there it costs nothing.

    Attributes:
        model: Whose metrics.
        kind: Of the step, such as "train".
        left: What the program is to do first: it assigns to variables of the model and does nothing else. None if nothing is left.
    """

    def __init__(self, model: keras.Model, kind: str) -> None:
        """Leave nothing yet."""
        self.model, self.kind = model, kind
        self.left: Callable[[], None] | None = None

    def can_leave(self) -> bool:
        """Whether the step will be a program of ours, and the model's metrics are reset by assigning to variables alone."""
        step = getattr(self.model, f"{self.kind}_function")
        is_program = isinstance(step, StepFunction) and not step.runs_eagerly and not step.runs_on_workers
        return is_program and all(map(_is_kerass_own, self.model.metrics))


def _is_kerass_own(metric: Any) -> bool:
    is_own = type(metric).reset_state.__module__.startswith("keras.")
    return is_own and all(map(_is_kerass_own, getattr(metric, "metrics", ())))  # What has been given to `compile`.


METRIC_RESET: ContextVar[MetricReset | None] = ContextVar("metric_reset", default=None)
"""The call that is under way in this thread."""


@final
class StepFunction:
    """Runs steps of a model under a strategy, called as Keras calls `train_function` and its like.

    Attributes:
        runs_eagerly: Whether each replica's step runs in Python, without a program.
    """

    def __init__(self, step: Step, strategy: Strategy) -> None:
        """Prepare `step`; programs are compiled when the first batch of each shape arrives."""
        self._step = step
        self._model = step.model
        self._strategy = strategy
        self._mesh = strategy.native.mesh
        self._workers = ServedSteps(strategy) if isinstance(strategy, ParameterServerStrategy) else None
        # Without a strategy, nothing is bound to a device, nor what any worker may get.
        self._is_bound = not strategy.is_default and self._workers is None
        depth = 0 if runs_on_cpu(self._mesh) else _AHEAD
        steps = self._model.steps_per_execution
        self._feed = BatchFeeder(
            self._mesh,
            steps,
            _most_in_program(step, strategy),
            ahead=depth,
            is_bound=self._is_bound,
            prepare=functools.partial(with_front_values, self._model),
        )
        self.runs_eagerly = self._model.run_eagerly
        self._program = functools.lru_cache(_MOST_PROGRAMS)(self._make_program)

    def __call__(self, state: Any, iterator: Iterator[Any]) -> tuple[Any, tuple[VariableIds, ...]]:
        """Run the next `steps_per_execution` steps, which change the model's variables.

        Args:
            state: The variables, as `variable_ids` gives them; anything else is not looked at.
            iterator: Host batches.

        Returns:
            The logs of the last step, or the predictions of all; and the variables.

        Raises:
            StopIteration: If `iterator` is at its end.
            ValueError: If it has nothing to train on at all.
        """
        is_training = self._step.kinds is TRAINED_KINDS
        try:
            runs = next(self._feed(iterator))
        except StopIteration:
            if is_training:
                require_batch(self._model)
            raise
        ids = state if isinstance(state[0], VariableIds) else self.variable_ids()
        results = [self._dispatch(ids, sizes, batches) for sizes, batches in runs]
        if is_training:
            note_training(self._model)
        if isinstance(self._step, TrainStep) and self._step.accumulates_locally:
            object.__setattr__(self._model, _SETTLE, self._settle)
        if isinstance(self._step, PredictStep):
            return restore_dict_order(_joined(results)), ids
        return results[-1], ids

    def _dispatch(self, ids: Any, sizes: Sizes, batches: Any) -> Any:
        """Run steps, here or, where they are not predictions, whose order is that of the batches, on a worker."""
        run = functools.partial(self._run, ids, sizes, batches, next_words())
        if self._workers is None or isinstance(self._step, PredictStep):
            return run()
        object.__setattr__(self._model, _SETTLE, self._workers.join)
        return self._workers.run(run, wait=METRIC_RESET.get() is not None)

    def variable_ids(self) -> tuple[VariableIds, ...]:
        """Return which variables the step has at present."""
        return tuple(VariableIds.of(self._model, kind) for kind in self._step.kinds)

    @property
    def runs_on_workers(self) -> bool:
        """Whether steps are given to workers, which run them beside each other."""
        return self._workers is not None

    def lower(self, batch: Any) -> Any:
        """Lower the step for a host batch without running it, as `jax.jit(fn).lower` does."""
        data, sizes = pad_to_equal(with_front_values(self._model, batch), self._strategy.num_replicas_in_sync)
        (program, _), leaves = self._find_program(self.variable_ids(), sizes, stacked([data]))
        return program.lower([*leaves, np.zeros(3, np.uint32)])

    def _settle(self) -> None:
        optimizer, whole = self._model.optimizer, PartitionSpec()
        accumulators = [optimizer.variables[i] for i in accumulator_slots(optimizer) if i is not None]
        mean = map_replicas(fused_mean, self._mesh, in_specs=(whole,), out_specs=whole)
        means = jit_with_agreement(mean, self._mesh)(list(map(load, accumulators)))
        for variable, value in zip(accumulators, means, strict=True):
            store(variable, value)

    def _run(self, ids: tuple[VariableIds, ...], sizes: Sizes, batches: Any, words: Any) -> Any:
        if self.runs_eagerly:
            with drawing_from(words):
                batch = jax.tree.map(lambda leaf: leaf[0], batches)
                run = run_side_by_side if self._workers is None else run_on_worker
                logs, rows = run(self._step, self._strategy, sizes, batch)
        else:
            with tracing_alone():
                (program, checks), leaves = self._find_program(ids, sizes, batches)
            check_batch(checks, leaves)
            logs, rows = program([*leaves, words])
            if (call := METRIC_RESET.get()) is not None:
                call.left = None
        return _without_padding(rows, sizes) if isinstance(self._step, PredictStep) else logs

    def _find_program(self, ids: Any, sizes: Sizes, batches: Any) -> tuple[Checked, list[Any]]:
        leaves, tree = jax.tree.flatten(batches)
        types = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        return self._program(
            (ids, current_device(), CLOSURE_KIND.get()), sizes, tree, types, self._find_reset() is not None
        ), leaves

    def _find_reset(self) -> Callable[[], None] | None:
        call = METRIC_RESET.get()
        return None if call is None or call.model is not self._model else call.left

    def _make_program(self, key: Any, sizes: Sizes, tree: Any, types: Sequence[Any], resets: bool) -> Checked:
        """Compile the step for batches of one shape; for its `key`: present variables, device scope, and who gets gradients."""
        del key
        reset = self._find_reset() if resets else None

        def steps(*arrays: Any) -> Any:
            if self._is_bound:
                scope: Any = current_scope()
                scope.belong_to(self._mesh)
            if reset is not None:
                reset()
            *leaves, words = arrays
            with drawing_from(words):
                return run_steps(self._step, self._strategy, sizes, tree.unflatten(leaves))

        arrays = [jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(dtype)) for shape, dtype in types]
        split, whole = NamedSharding(self._mesh, SPLIT_STEPS), replicated_sharding(self._mesh)
        arrays.append(jax.ShapeDtypeStruct((3,), np.uint32))
        program = make_program(
            steps,
            arrays,
            name=self._step.name,
            layouts=[*(split for _ in types), whole] if self._is_bound else None,
        )
        tell_traffic(program, self._step.name, self._strategy)
        return program, find_checks(program, len(types))


def _most_in_program(step: Step, strategy: Strategy) -> int:
    """Return how many steps are compiled together: predictions join on the host, debugging goes one by one."""
    if isinstance(step, PredictStep) or step.model.run_eagerly:
        return 1
    wanted = step.model.steps_per_execution
    return min(wanted, _MOST_UNROLLED) if runs_on_cpu(strategy.native.mesh) else wanted


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
