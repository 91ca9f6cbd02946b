"""Closures that wait for a worker, and what has become of those that ran."""

import collections
import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, final

from tfdist_jax._coordinator._remote_value import RemoteValue


class ClosureCancelledError(RuntimeError):
    """A closure has not run, since one that was scheduled before has failed."""


@final
@dataclasses.dataclass(eq=False)
class Closure:
    """A function that any worker may run, and its result.

    Attributes:
        fn: The function. It may run more than once, if a worker goes while it does.
        result: What has become of it.
        worker: Which worker is to run it; None for any.
        number: Which one it is of all that were scheduled; None for what a worker makes for itself.
        notes: What its runs leave for the next one, if it runs again.
    """

    fn: Callable[[], Any]
    result: RemoteValue = dataclasses.field(default_factory=RemoteValue)
    worker: int | None = None
    number: int | None = None
    notes: dict[Any, Any] = dataclasses.field(default_factory=dict)


@final
class ClosureQueue:
    """Closures in the order in which they were scheduled, which threads of workers take.

    The first error of a closure is raised by the next `put`, `join` or `done`. These wait then until no closure runs, cancel those that
    have not run, and forget the error.

    Attributes:
        make_cancelled: Makes the error of a closure that is cancelled.
        may_take: Whether a worker may take a closure at present, given whether some are gone.
        begin: Called when a worker takes one, before `may_take` is asked again.
        settle: Called when all have ended, or been cancelled after an error, before `put`, `join` or `done` tells; meanwhile none is put.
        limit: How many closures may wait.
    """

    def __init__(
        self,
        num_workers: int,
        make_cancelled: Callable[[], Exception],
        *,
        limit: int = 256 * 1024,
        max_staleness: int | None = None,
    ) -> None:
        """Be empty.

        Args:
            num_workers: How many take closures. If one closure runs at a time they take turns, so that each gets the same ones each time.
            make_cancelled: Makes the error of a closure that is cancelled.
            limit: How many closures may wait; `put` waits while there are so many.
            max_staleness: How many others may end while a closure runs; None for any number.
        """
        self.make_cancelled, self.limit, self._max_staleness = make_cancelled, limit, max_staleness
        self.may_take: Callable[[int, bool], bool] = lambda worker, are_some_gone: True
        self.begin: Callable[[int], object] = lambda worker: None
        self.settle: Callable[[], object] = lambda: None
        # Those that any worker may run, by None, and those of each worker.
        self._waiting: dict[int | None, collections.deque[Closure]] = {
            worker: collections.deque() for worker in (None, *range(num_workers))
        }
        # Each closure that runs, and how many had ended when it began.
        self._running: dict[Closure, int] = {}
        self._ended = 0
        self._newest = -1
        # When each of the workers that are gone has left.
        self._num_workers, self._gone = num_workers, dict[int, float]()
        self._is_free_for_all = False
        self._turn = 0 if max_staleness == 0 else None
        self._error: BaseException | None = None
        self._end_of_all: BaseException | None = None
        self._is_open, self._is_ending = True, False
        self._changed = threading.Condition()
        # While one thread waits for all closures, or settles, no other one schedules more of them.
        self._scheduling = threading.Lock()

    @property
    def is_open(self) -> bool:
        """Whether closures are given out."""
        return self._is_open

    @property
    def num_put(self) -> int:
        """How many closures have been put, whatever has become of them."""
        return self._newest + 1

    @property
    def is_idle(self) -> bool:
        """Whether no closure waits or runs."""
        with self._changed:
            return self._is_empty()

    def put(self, closure: Closure) -> None:
        """Let a closure wait for a worker."""
        with self._scheduling, self._settling_after_errors(), self._changed:
            self._changed.wait_for(
                lambda: self._num_waiting() < self.limit or self._error is not None or not self._is_open
            )
            self.must_be_open()
            # Python handles interrupts after calls: none comes between what is counted and what is there.
            self._newest += 1
            closure.number = self._newest
            self._waiting[None if self._is_free_for_all else closure.worker].append(closure)
            self._raise_error()
            self._changed.notify_all()

    def take(self, worker: int, *, or_when: Callable[[], bool] = lambda: False) -> Closure | None:
        """Wait for a closure for a worker and take it, to be followed by `finish`, `fail` or `put_back`.

        Returns:
            The closure; None if the queue is closed, or as soon as `or_when()`.
        """
        is_next = lambda: self._may_begin(worker) and (self._turn is None or self._next() == worker)
        with self._changed:
            self._changed.wait_for(lambda: is_next() or not self._is_open or or_when())
            if or_when() or not self._is_open:
                return None
            closure = (self._waiting[worker] or self._waiting[None]).popleft()
            if self._turn is not None:
                self._turn = worker + 1
            self.begin(worker)
            self._running[closure] = self._ended
            self._changed.notify_all()
            return closure

    def wake(self) -> None:
        """Let those who wait in `take` look again."""
        with self._changed:
            self._changed.notify_all()

    def oldest(self) -> int:
        """Return the number of the first closure that may still run; if there is none, one that is larger than that of any before."""
        with self._changed:
            first = [waiting[0] for waiting in self._waiting.values() if waiting]
            numbers = [closure.number for closure in (*first, *self._running) if closure.number is not None]
            return min(numbers, default=self._newest + 1)

    @property
    def are_some_gone(self) -> bool:
        """Whether a worker is gone at present."""
        return bool(self._gone)

    def alone_s(self) -> float:
        """Return for how many seconds all workers have been gone; 0 while one is there."""
        with self._changed:
            return time.monotonic() - max(self._gone.values()) if len(self._gone) == self._num_workers else 0.0

    def leave(self, worker: int) -> None:
        """Let the others take a worker's turns until it is back; from now on any worker may run any closure, so that none waits for it."""
        with self._changed:
            self._gone[worker] = time.monotonic()
            self._is_free_for_all = True
            waiting = sorted((closure for each in self._waiting.values() for closure in each), key=_number)
            for each in self._waiting.values():
                each.clear()
            self._waiting[None].extend(waiting)
            self._changed.notify_all()

    def come_back(self, worker: int) -> None:
        """Let a worker have its turns again."""
        with self._changed:
            self._gone.pop(worker, None)
            self._changed.notify_all()

    def finish(self, closure: Closure) -> None:
        """Note that a closure that was taken has run."""
        with self._changed:
            self._end(closure)

    def fail(self, closure: Closure, error: BaseException) -> None:
        """Note that a closure that was taken has failed."""
        with self._changed:
            if self._error is None:
                self._error = error
            self._end(closure)

    def put_back(self, closure: Closure) -> None:
        """Let a closure that was taken wait again, in its place among the others; cancel it, if one has failed."""
        with self._changed:
            if self._error is None and self._is_open:
                waiting = self._waiting[None if self._is_free_for_all else closure.worker]
                waiting.insert(sum(_number(other) < _number(closure) for other in waiting), closure)
            else:
                closure.result.set_error(self.make_cancelled())
            self._end(closure)

    def join(self) -> None:
        """Wait until all closures have run.

        Raises:
            RuntimeError: If it is closed meanwhile, which cancels some.
        """
        with self._scheduling, self._settling_after_errors():
            with self._changed:
                has_run_all = self._is_empty()
                self._changed.wait_for(lambda: self._error is not None or self._is_empty() or not self._is_open)
                self._raise_error()
                if self._end_of_all is not None:
                    raise self._end_of_all
                if not has_run_all:
                    self.must_be_open()
            self.settle()

    def done(self) -> bool:
        """Return whether all closures have run; not while another thread schedules more, or waits for them."""
        if not self._scheduling.acquire(blocking=False):
            return False
        try:
            with self._settling_after_errors():
                with self._changed:
                    self._raise_error()
                    if self._end_of_all is not None:
                        raise self._end_of_all
                    if not self._is_empty():
                        return False
                self.settle()
                return True
        finally:
            self._scheduling.release()

    @contextlib.contextmanager
    def _settling_after_errors(self) -> Iterator[None]:
        """Leave nothing unsettled behind an error that cancels the rest; to be entered before `_changed`, for which others would wait."""
        try:
            yield
        except BaseException:
            if self.is_idle:  # Else this thread was interrupted, or does not wait, and workers go on.
                self.settle()
            raise

    def break_off(self, error: BaseException) -> None:
        """Give out no more closures, cancel those that wait, and raise `error` from now on: workers cannot go on."""
        with self._changed:
            self._end_of_all = self._end_of_all or error
            self.close()

    def close(self) -> None:
        """Give out no more closures, and cancel those that wait."""
        with self._changed:
            self._is_open = False
            self._cancel_waiting()
            self._changed.notify_all()

    def _is_empty(self) -> bool:
        return not self._num_waiting() and not self._running

    def _num_waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def _may_begin(self, worker: int) -> bool:
        """Whether a closure waits that a worker may run beside those that run: each of these could end before any other one does."""
        is_there = bool(self._waiting[worker] or self._waiting[None]) and self.may_take(worker, self.are_some_gone)
        if self._is_ending or not is_there or self._max_staleness is None:
            return is_there and not self._is_ending
        others = len(self._running)
        return all(
            self._ended - begin + others <= self._max_staleness for begin in (self._ended, *self._running.values())
        )

    def _next(self) -> int | None:
        """Return whose turn it is; None while all are gone."""
        following = ((self._turn or 0) + i for i in range(self._num_workers))
        return next((i % self._num_workers for i in following if i % self._num_workers not in self._gone), None)

    def _end(self, closure: Closure) -> None:
        del self._running[closure]
        self._ended += 1
        self._changed.notify_all()

    def _raise_error(self) -> None:
        if self._error is None:
            return
        self._is_ending = True
        try:
            self._changed.wait_for(lambda: not self._running)
        finally:
            self._is_ending = False
        error, self._error = self._error, None
        self._cancel_waiting()
        raise error

    def _cancel_waiting(self) -> None:
        for waiting in self._waiting.values():
            while waiting:
                waiting.popleft().result.set_error(self.make_cancelled())

    def must_be_open(self) -> None:
        """Raise a RuntimeError, or what it was broken off with, if it is closed."""
        if self._end_of_all is not None:
            raise self._end_of_all
        if not self._is_open:
            raise RuntimeError("The coordinator has been stopped: make another one.")


def _number(closure: Closure) -> int:
    return closure.number or 0
