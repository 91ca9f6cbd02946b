"""Synchronous training with parameter servers: gradients that workers hand over in a round are applied together when it ends."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, final

import jax

from tfdist_jax._coordinator import Closure, Rounds, Statistics, Worker, tracing_alone
from tfdist_jax._sharding._mesh import Device
from tfdist_jax._stateful._handed_over import Delivery, collecting
from tfdist_jax._stateful._served_program import CellProgram, make_program
from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy

# Programs that are kept: of each receiver one for each set of shapes, which differ where there are sparse gradients.
_MOST_PROGRAMS = 128

Part = list[tuple[Delivery, list[Any]]]
"""What one closure has handed over: arrays, by where."""


@final
class RoundUpdates:
    """Applies what the closures of a round have handed over, on the coordinator's behalf."""

    def __init__(self, strategy: Strategy, home: Device, statistics: Statistics) -> None:
        """Compute on the device `home`."""
        self._strategy, self._home, self._statistics = strategy, home, statistics
        self._programs: dict[Any, CellProgram] = {}

    def apply(self, parts: Sequence[Part]) -> None:
        """Apply the parts of a round: for each receiver those of the closures that have handed something over to it."""
        of_receivers: dict[int, Part] = {}
        for delivery, arrays in itertools.chain.from_iterable(parts):
            of_receivers.setdefault(id(delivery.receiver), []).append((delivery, arrays))
        with self._strategy.scope(), jax.default_device(self._home):
            for handed_over in of_receivers.values():
                self._apply_of_one(handed_over)

    def _apply_of_one(self, handed_over: Part) -> None:
        deliveries = [delivery for delivery, _ in handed_over]
        arrays = [jax.device_put(array, self._home) for _, leaves in handed_over for array in leaves]
        kinds = tuple(delivery.kind for delivery in deliveries)
        key = kinds, tuple((array.shape, array.dtype) for array in arrays)
        program = self._programs.pop(key, None)
        if program is None:
            with tracing_alone(always=True):
                program = make_program(functools.partial(_apply, deliveries), arrays, name="round")
        self._programs[key] = program  # The one that was used last is the last one.
        if len(self._programs) > _MOST_PROGRAMS:
            del self._programs[next(iter(self._programs))]
        program(arrays)


def _apply(deliveries: Sequence[Delivery], *arrays: Any) -> None:
    rest = iter(arrays)
    parts = [(each.targets, each.tree.unflatten(itertools.islice(rest, each.tree.num_leaves))) for each in deliveries]
    deliveries[0].apply(parts)


@final
class RoundWorker:
    """A worker whose closures hand gradients over to rounds."""

    def __init__(self, worker: Worker, rounds: Rounds, statistics: Statistics) -> None:
        """Let `worker` run closures."""
        self.index, self._worker, self._rounds, self._statistics = worker.index, worker, rounds, statistics

    def run(self, closure: Closure, oldest: Callable[[], int]) -> Any:
        """Run a closure, and give what it hands over to the round in which it was taken; nothing of one that fails."""
        if closure.number is None:  # A worker makes something of its own.
            return self._worker.run(closure, oldest)
        part: Part = []

        def fn() -> Any:
            with collecting() as outbox:
                result = closure.fn()
                part.extend(outbox.arrays.items())
            jax.block_until_ready([arrays for _, arrays in part])
            return result

        self._rounds.wait()
        try:
            result = self._worker.run(dataclasses.replace(closure, fn=fn), oldest)
        except BaseException:
            self._rounds.give_up(self.index)
            raise
        if part:
            self._statistics.note(0, sum(array.nbytes for _, arrays in part for array in arrays), ())
            self._rounds.add(self.index, closure.number, part)
        else:
            self._rounds.give_up(self.index)
        return result

    def recover(self, is_over: Callable[[], bool]) -> None:
        """Wait until the worker is there again, or `is_over()`."""
        self._worker.recover(is_over)
