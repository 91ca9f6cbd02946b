"""Local SGD with parameter servers: each worker trains variables of its own, which are put together after some steps of all."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, final

import jax

from tfdist_jax._coordinator import (
    Closure,
    LocalRounds,
    LocalWorker,
    Statistics,
    Worker,
    WorkerLostError,
    tracing_alone,
)
from tfdist_jax._sharding._mesh import Device
from tfdist_jax._stateful._remote_storage import Servers
from tfdist_jax._stateful._served_program import CellProgram, make_program
from tfdist_jax._stateful._worker_copies import WorkerCopies, mean_of, training_locally
from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy


@final
class LocalUpdates:
    """Makes of the workers' variables the common ones, from which all go on.

    Attributes:
        weights: How trainable variables are kept.
    """

    def __init__(
        self, strategy: Strategy, home: Device, outer_optimizer: Any, statistics: Statistics, servers: Servers | None
    ) -> None:
        """Compute on the device `home`, where common variables are; workers' processes, if they have some, are reached by `servers`."""
        self._strategy, self._home, self._outer, self._statistics = strategy, home, outer_optimizer, statistics
        (place_name, *_) = strategy.parameter_devices or (None,)
        # Optimizers are built once: those of variables that were there in other rounds, by the variables.
        self._outers: list[tuple[Any, list[Any]]] = []
        self._slots = WorkerCopies(home, place_name, servers=servers)
        self.weights = WorkerCopies(home, place_name, self._slots, servers)
        self._programs: dict[Any, CellProgram] = {}

    def combine(self, workers: Sequence[int]) -> None:
        """Put together what some workers have made of the common variables. What their optimizers keep stays each worker's own."""
        with jax.default_device(self._home):
            snapshot = self.weights.snapshot()
            found = self.weights.fetch(snapshot, workers)
            size = sum(copies.common.nbytes for _, copies in snapshot)
            means = list(map(mean_of, zip(*found.values(), strict=True)))
            try:
                if means and self._outer is not None:
                    self._apply_outer(snapshot, means)
                elif means:
                    self.weights.replace(snapshot, means)
            finally:  # If it has failed, all go on from what there was.
                self.weights.replace(snapshot, [copies.common for _, copies in snapshot])
        self._statistics.note(size * len(workers), size * len(found), ())

    def share(self, workers: Sequence[int]) -> None:
        """Let the common value of what optimizers keep be the mean of some workers'."""
        self._slots.share_mean(workers)

    def forget(self, worker: int, others: Sequence[int]) -> None:
        """Let a worker, whose process has gone, go on from the common variables, and from the mean of what others' optimizers keep."""
        self.weights.forget(worker, others)

    def _apply_outer(self, snapshot: Sequence[tuple[Any, Any]], means: Sequence[jax.Array]) -> None:
        """Let the outer optimizer follow the mean difference, as a gradient."""
        changed = [cell for cell, _ in snapshot]
        differences = [copies.common - mean for (_, copies), mean in zip(snapshot, means, strict=True)]
        with self._strategy.scope():
            self._build_for_new()
            key = tuple(map(id, changed))
            if key not in self._programs:
                with tracing_alone(always=True):
                    apply = functools.partial(_apply_each, self._outers, changed)
                    self._programs[key] = make_program(apply, differences, name="outer step")
            self._programs[key](differences)

    def _build_for_new(self) -> None:
        """Have an outer optimizer for the weights that none is there for yet."""
        if self._outer.built and not self._outers:
            self._add_outer(self._outer, list(self._outer._trainable_variables))  # noqa: SLF001
        known = {id(cell) for _, cells in self._outers for cell in cells}
        new = [cell for cell in self.weights.cells if id(cell) not in known]
        if new:
            outer = type(self._outer).from_config(self._outer.get_config()) if self._outers else self._outer
            outer.build(new)
            self._add_outer(outer, new)

    def _add_outer(self, outer: Any, weights: Sequence[Any]) -> None:
        """Keep what an outer optimizer of weights keeps where these are: servers would not change them together."""
        for variable in outer.variables:
            self.weights.keep_like(variable, weights[0])
        self._outers.append((outer, list(weights)))


def _apply_each(outers: Sequence[tuple[Any, Sequence[Any]]], cells: Sequence[Any], *differences: jax.Array) -> None:
    """Let each outer optimizer change those of the cells that it has been built for."""
    gradients = {id(cell): difference for cell, difference in zip(cells, differences, strict=True)}
    for outer, built_for in outers:
        own = [cell for cell in built_for if id(cell) in gradients]
        if own:
            outer.apply([gradients[id(cell)] for cell in own], own)


@final
class TrainingWorker:
    """A worker whose closures train variables of its own."""

    def __init__(self, worker: Worker, rounds: LocalRounds) -> None:
        """Let `worker` run closures."""
        self.index, self._worker, self._rounds = worker.index, LocalWorker(worker), rounds
        self._worker.rounds = rounds

    def run(self, closure: Closure, oldest: Callable[[], int]) -> Any:
        """Run a closure, which counts as a step if it has changed variables, and even if it fails then: what it has done stays."""
        if closure.number is None:  # A worker makes something of its own.
            return self._worker.run(closure, oldest)
        has_trained = False

        def fn() -> Any:
            nonlocal has_trained
            with training_locally() as training:
                try:
                    return closure.fn()
                finally:
                    has_trained = training.has_changed

        try:
            return self._worker.run(dataclasses.replace(closure, fn=fn), oldest)
        except WorkerLostError:
            has_trained = False
            raise
        finally:
            if has_trained:
                self._rounds.add(self.index)

    def recover(self, is_over: Callable[[], bool]) -> None:
        """Wait until the worker is there again, or `is_over()`."""
        self._worker.recover(is_over)
