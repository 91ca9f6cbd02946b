"""The coordinator: a thread for each worker takes closures from a queue and has them run."""

import collections
import logging
import math
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, final

from tfdist_jax._cluster import Timeouts
from tfdist_jax._coordinator._closure_queue import Closure, ClosureCancelledError, ClosureQueue
from tfdist_jax._coordinator._remote_value import RemoteValue
from tfdist_jax._coordinator._statistics import Reporter, Snapshot, Statistics
from tfdist_jax._coordinator._worker import Worker, WorkerLostError, current_worker

_log = logging.getLogger("tfdist_jax")
_LAST_S = 10
_CANCELLED = "The closure is cancelled, since another one has failed. Schedule it again."


def check_options(max_staleness: Any, report_every_s: Any) -> None:
    """Check options of a `Coordinator`.

    Raises:
        ValueError: If one is not what it should be.
    """
    if report_every_s is not None and not (_is_a(float, report_every_s) and report_every_s > 0):
        raise ValueError(f"`report_every_s` is a number of seconds, or None, got {report_every_s!r}.")
    if max_staleness is not None and not (_is_a(int, max_staleness) and max_staleness >= 0):
        raise ValueError(f"`max_staleness` is a number of closures, 0 or more, or None, got {max_staleness!r}.")


def _is_a(kind: type, number: Any) -> bool:
    return isinstance(number, int | kind) and not isinstance(number, bool)


@final
class Coordinator:
    """Runs closures on workers, each on whichever is free, at least once.

    If a worker goes while it runs a closure, that is run again on another one, and the worker gets its own values anew when it is back.

    Attributes:
        statistics: What has happened.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        *,
        statistics: Statistics | None = None,
        max_staleness: int | None = None,
        report_every_s: float | None = None,
        make_cancelled: Callable[[], Exception] = lambda: ClosureCancelledError(_CANCELLED),
    ) -> None:
        """Start a thread for each of `workers`.

        Args:
            workers: Who runs closures.
            statistics: Where closures are counted.
            max_staleness: How many other closures may end, at most, while one runs: so many changes of others has it not seen. With 0 they
                run one after another, in the order in which they are scheduled, on one worker after another. None for any number.
            report_every_s: After how many seconds each time what has happened is logged; None for never.
            make_cancelled: Makes the error of a closure that is cancelled.

        Raises:
            ValueError: As `check_options`.
        """
        check_options(max_staleness, report_every_s)
        self.statistics = statistics or Statistics(len(workers))
        self._queue = ClosureQueue(len(workers), make_cancelled, max_staleness=max_staleness)
        self._threads = [_WorkerThread(worker, self._queue, self.statistics) for worker in workers]
        reporter = Reporter(self.statistics, report_every_s or math.inf, _log_statistics)
        for thread in (*self._threads, *([reporter] if report_every_s else ())):
            thread.start()
        # Not by `__del__`: the threads must end before Python does, when daemons may no longer call XLA.
        self._stop = weakref.finalize(self, _stop, self._queue, self._threads, reporter)

    @property
    def num_workers(self) -> int:
        """How many workers there are, also those that are gone at present."""
        return len(self._threads)

    def schedule(self, fn: Callable[[], Any], *, worker: int | None = None) -> RemoteValue:
        """Let a worker run `fn`, and return at once.

        Args:
            fn: The function.
            worker: Which worker is to run it; None for any, as all are when a worker has gone.

        Raises:
            Exception: The first error of a closure that was scheduled before; closures that have not run are cancelled.
        """
        _must_not_be_worker("schedule")
        closure = Closure(fn, worker=worker)
        self._queue.put(closure)
        return closure.result

    def restrict(
        self,
        may_take: Callable[[int, bool], bool],
        *,
        limit: int | None = None,
        begin: Callable[[int], object] = lambda worker: None,
        settle: Callable[[], object] = lambda: None,
    ) -> None:
        """Say when workers may take closures, and how many may wait for them; to be called before any is scheduled.

        Args:
            may_take: Whether a worker may take one at present, given whether some workers are gone. It is asked again when a closure has
                ended, and must wait for nothing.
            limit: How many may wait; `schedule` waits while there are so many. None for as many as before.
            begin: Called when a worker takes one, before others are asked about; it must wait for nothing.
            settle: Called when all have ended, before `join` and `done` tell, or `schedule` raises an error; meanwhile none is scheduled.
        """
        self._queue.may_take, self._queue.limit = may_take, limit or self._queue.limit
        self._queue.begin, self._queue.settle = begin, settle

    def make_on_each(self, fn: Callable[[], Any]) -> list[RemoteValue]:
        """Let each worker make something of its own, such as an iterator, and again when it is back after it had gone."""
        _must_not_be_worker("make_on_each")
        self._queue.must_be_open()
        return [thread.make(fn) for thread in self._threads]

    def join(self) -> None:
        """Wait until all closures have run.

        Raises:
            Exception: As `schedule`.
            RuntimeError: If another thread calls `stop` meanwhile.
        """
        _must_not_be_worker("join")
        self._queue.join()

    def done(self) -> bool:
        """Return whether all closures have run; not while another thread schedules more, or waits for them.

        Raises:
            Exception: As `schedule`.
        """
        return self._queue.done()

    @property
    def num_scheduled(self) -> int:
        """How many closures have been scheduled, whatever has become of them."""
        return self._queue.num_put

    @property
    def is_idle(self) -> bool:
        """Whether no closure waits or runs, whatever has become of those that have."""
        return self._queue.is_idle

    def stop(self) -> None:
        """End the workers' threads, which have some seconds for what they are at; closures that wait are cancelled."""
        self._stop()


@final
class _WorkerThread(threading.Thread):
    """Has a worker make what is its own, and run closures."""

    def __init__(self, worker: Worker, queue: ClosureQueue, statistics: Statistics) -> None:
        super().__init__(name=f"worker {worker.index}", daemon=True)
        self._worker, self._queue, self._statistics = worker, queue, statistics
        # Both change in other threads, too.
        self._lock = threading.Lock()
        self._to_make: collections.deque[Closure] = collections.deque()
        # By what it has made: a function goes with it.
        self._made: weakref.WeakKeyDictionary[RemoteValue, Callable[[], Any]] = weakref.WeakKeyDictionary()

    def make(self, fn: Callable[[], Any]) -> RemoteValue:
        """Let the worker make something before it runs other closures."""
        closure = Closure(fn)
        with self._lock:
            self._made[closure.result] = fn
            self._to_make.append(closure)
        self._queue.wake()
        return closure.result

    def run(self) -> None:
        while self._queue.is_open:
            while self._to_make and self._queue.is_open:
                self._make_one(self._to_make.popleft())
            closure = self._queue.take(self._worker.index, or_when=lambda: bool(self._to_make))
            if closure is not None:
                self._run_one(closure)
            del closure  # It holds arrays.
        self._make_no_more(self._queue.make_cancelled())

    def _make_one(self, closure: Closure) -> None:
        try:
            closure.result.set_value(self._worker.run(closure, self._queue.oldest))
        except WorkerLostError:
            self._recover()
        except BaseException as error:
            closure.result.set_error(error)

    def _run_one(self, closure: Closure) -> None:
        try:
            value = self._worker.run(closure, self._queue.oldest)
        except WorkerLostError:
            self._statistics.count(retries=1)
            self._queue.put_back(closure)
            self._recover()
        except BaseException as error:  # Else whoever waits for it would wait for ever.
            closure.result.set_error(error)
            self._queue.fail(closure, error)
        else:
            closure.result.set_value(value)
            self._statistics.count(closures=1)
            self._queue.finish(closure)

    def _make_no_more(self, error: BaseException) -> None:
        with self._lock:
            for result in list(self._made):
                if not result.is_ready:
                    result.set_error(error)

    def _recover(self) -> None:
        """Wait for the worker, which then makes anew all that was its own."""
        self._statistics.count(workers=-1)
        self._queue.leave(self._worker.index)
        with self._lock:
            for result in list(self._made):
                result.clear()
        try:
            self._worker.recover(self._is_over)
        except BaseException as error:  # Else whoever waits for its closures would wait for ever.
            self._queue.break_off(error)
            self._make_no_more(error)
            return
        if not self._queue.is_open:
            self._make_no_more(self._queue.make_cancelled())
            return
        with self._lock:
            self._to_make = collections.deque(Closure(fn, result) for result, fn in list(self._made.items()))
        self._statistics.count(workers=1)
        self._queue.come_back(self._worker.index)

    def _is_over(self) -> bool:
        """Whether nobody waits for the worker any more.

        Raises:
            TimeoutError: If all have been gone for as long as `Timeouts.wait_s` says.
        """
        limit_s = Timeouts.of_environment().wait_s
        if self._queue.alone_s() > limit_s:
            raise TimeoutError(f"All workers have gone, and none has come back for {limit_s:g} s.")
        return not self._queue.is_open


def _log_statistics(snapshot: Snapshot) -> None:
    _log.info("%s", snapshot)


def _stop(queue: ClosureQueue, threads: Sequence[_WorkerThread], reporter: Reporter) -> None:
    queue.close()
    reporter.stop()
    end = time.monotonic() + _LAST_S
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, end - time.monotonic()))


def _must_not_be_worker(what: str) -> None:
    if current_worker() is not None:
        raise RuntimeError(
            f"`{what}` in a closure would wait for the worker that runs it. Call it where the coordinator was made."
        )
