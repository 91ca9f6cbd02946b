"""Local SGD: each worker trains for itself, and after some steps of all what they have made is put together."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, final

from tfdist_jax._coordinator._closure_queue import Closure
from tfdist_jax._coordinator._statistics import Statistics
from tfdist_jax._coordinator._worker import Worker, WorkerLostError


class LocalUpdates(Protocol):
    """Has what workers train."""

    def combine(self, workers: Sequence[int]) -> None:
        """Put together what workers have made since the last round, from which all go on. Some of their processes may have gone."""
        ...

    def share(self, workers: Sequence[int]) -> None:
        """Let what workers of the last round keep for themselves be where others read it."""
        ...

    def forget(self, worker: int, others: Sequence[int]) -> None:
        """Let a worker, whose process has gone or is back, go on from what is common, and otherwise from what others have made."""
        ...


@final
class LocalRounds:
    """Lets each worker make so many steps, until all that are there have.

    Attributes:
        lock: Held while a round ends, and while steps are counted.
    """

    def __init__(
        self, workers: int, sync_every: int, updates: Callable[[], LocalUpdates | None], statistics: Statistics
    ) -> None:
        """Let what `updates` returns put together what workers have made when all have made `sync_every` steps; None if that has gone."""
        self._sync_every, self._updates, self._statistics = sync_every, updates, statistics
        self._steps = [0] * workers
        # The workers of the last round, and whether others do not see all of it yet; the workers that are gone.
        self._last: list[int] = []
        self._is_behind = False
        self._gone: set[int] = set()
        self.lock = threading.Lock()

    def may_take(self, worker: int, are_some_gone: bool) -> bool:
        """Whether a worker has steps to make before the others' variables are put together with its own."""
        return self._steps[worker] < self._sync_every

    def begin(self, worker: int) -> None:
        """Note nothing: what counts is what a worker has done."""

    def add(self, worker: int) -> None:
        """Note that a worker has made a step."""
        with self.lock:
            self._steps[worker] += 1
            self._end_if_complete()

    def lose(self, worker: int) -> None:
        """Note that a worker's process has gone, and with it what it has made since the last round; the others go on without it."""
        with self.lock:
            self._steps[worker] = 0
            self._gone.add(worker)
            self._last = [other for other in self._last if other != worker]
            updates = self._updates()
            if updates is not None:
                updates.forget(worker, self._last)
                self._end_if_complete()

    def come_back(self, worker: int) -> None:
        """Note that a worker is there again; it goes on from what the others have made by then, not from what they had when it went."""
        with self.lock:
            self._gone.discard(worker)
            updates = self._updates()
            if updates is not None:
                updates.forget(worker, self._last)

    def settle(self) -> None:
        """Put together the variables of the workers that have made steps, and what optimizers keep."""
        with self.lock:
            if any(self._steps):
                self._end()
            if self._is_behind:
                updates: Any = self._updates()  # Who waits for all has it.
                updates.share(self._last)
                self._is_behind = False

    @property
    def is_settled(self) -> bool:
        """Whether no worker has made a step since the last round."""
        return not any(self._steps)

    def _end_if_complete(self) -> None:
        present = [steps for worker, steps in enumerate(self._steps) if worker not in self._gone]
        if present and min(present) == self._sync_every:
            self._end()

    def _end(self) -> None:
        self._last, self._is_behind = [worker for worker, steps in enumerate(self._steps) if steps], True
        try:
            updates: Any = self._updates()  # Who makes a step has it.
            updates.combine(self._last)
            self._statistics.count(rounds=1)
        finally:
            self._steps = [0] * len(self._steps)


@final
class LocalWorker:
    """A worker that trains for itself, and loses with its process what it has made since the last round.

    Attributes:
        rounds: Those that it takes part in.
    """

    def __init__(self, worker: Worker) -> None:
        """Let `worker` run closures."""
        self.index, self._worker = worker.index, worker
        self.rounds: LocalRounds | None = None

    def run(self, closure: Closure, oldest: Callable[[], int]) -> Any:
        """Run a closure."""
        try:
            return self._worker.run(closure, oldest)
        except WorkerLostError:
            if self.rounds is not None:  # Before others are told, who may have waited for this worker's round.
                self.rounds.lose(self.index)
            raise

    def recover(self, is_over: Callable[[], bool]) -> None:
        """Wait until the worker is there again, or `is_over()`; the others train without it meanwhile."""
        self._worker.recover(is_over)
        if self.rounds is not None and not is_over():
            self.rounds.come_back(self.index)
