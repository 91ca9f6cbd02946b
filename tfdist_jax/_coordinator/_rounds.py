"""Rounds: what workers compute of the same values is put together, but for what comes too late."""

import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any, final

from tfdist_jax._coordinator._statistics import Statistics


@final
class Rounds:
    """Lets each worker take one closure in a round, and ends a round when enough of them have given their part.

    A worker that is late misses rounds, and its part is dropped. While a worker is gone, the others take its closures, too.
    Ref: Chen et al. 2016, Revisiting Distributed Synchronous SGD, https://arxiv.org/abs/1604.00981

    Attributes:
        lock: Held while a round ends.
    """

    def __init__(self, workers: int, needed: int, end: Callable[[Sequence[Any]], None], statistics: Statistics) -> None:
        """Begin the first round.

        Args:
            workers: How many closures may be taken in a round.
            needed: How many parts end it.
            end: Called with the parts of a round, in the order of their closures; what it raises is raised where the last one was given.
            statistics: Where rounds are counted, and what is dropped.
        """
        self._workers, self._needed, self._end_with, self._statistics = workers, needed, end, statistics
        self.lock = threading.Lock()
        # Held for what follows: where workers take closures nobody waits for the end of a round.
        self._counting = threading.Lock()
        self._number = 0
        self._round_of: dict[int, int] = {}
        # The workers that have taken a closure in this round, and the parts with the numbers of their closures.
        self._begun: list[int] = []
        self._parts: list[tuple[int, Any]] = []

    def may_take(self, worker: int, are_some_gone: bool = False) -> bool:
        """Whether a worker may take a closure: one in a round, or more where others are gone. It waits for nothing."""
        begun = len(self._begun)
        return begun < self._workers and (worker not in self._begun or (are_some_gone and begun < self._needed))

    def begin(self, worker: int) -> None:
        """Note that a worker has taken a closure, of the present round. It waits for nothing."""
        with self._counting:
            self._begun.append(worker)
            self._round_of[worker] = self._number

    def wait(self) -> None:
        """Wait until the round before has ended, so that a closure of this one finds what has come of it."""
        with self.lock:
            pass

    def give_up(self, worker: int) -> None:
        """Note that nothing will come of a worker's closure for its round, which would wait for it."""
        with self._counting:
            if self._round_of[worker] == self._number:
                self._begun.remove(worker)

    def add(self, worker: int, number: int, part: Any) -> bool:
        """Add a part to its round, which ends if it was the last one.

        Args:
            worker: Whose closure's it is.
            number: The closure's number.
            part: What has come of it.

        Returns:
            Whether it counts; not if it comes too late, which is counted as dropped.
        """
        with self.lock:
            if self._round_of[worker] != self._number:  # Which changes where `lock` is held.
                self._statistics.count(dropped=1)
                return False
            self._parts.append((number, part))
            if len(self._parts) == self._needed:
                self._end()
            return True

    @property
    def is_settled(self) -> bool:
        """Whether a round has not begun yet."""
        return not self._begun and not self._parts

    def settle(self) -> None:
        """End a round with the parts that there are, if there are some."""
        with self.lock:
            if self._parts:
                self._end()

    def _end(self) -> None:
        parts, self._parts = sorted(self._parts, key=operator.itemgetter(0)), []
        with self._counting:
            self._begun.clear()
            self._number += 1
        self._end_with([part for _, part in parts])
        self._statistics.count(rounds=1)
