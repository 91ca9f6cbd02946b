"""A thread that prepares elements ahead of their use."""

import dataclasses
import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any, final

from tfdist_jax._coordinator import Worker, being_worker, current_worker, run_freely
from tfdist_jax.compat.tensorflow.data._failures import guarded, raising
from tfdist_jax.compat.tensorflow.data._plan import Batches, Plan, rows_in_each
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog

_END = object()
_LEAVE_S = 2.0


@final
class _Ahead:
    """Items that a thread has ready.

    Nothing but `SimpleQueue`s, which are written in C: an exception like KeyboardInterrupt in the middle of `queue.Queue` or
    `threading.Event` would leave their locks taken.
    """

    def __init__(self, items: Iterable[Any], depth: int) -> None:
        self._items = items
        self._ready: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._free: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_stopped = False
        for _ in range(depth):
            self._free.put(None)

    def fill(self) -> None:
        """Get items ready until they end or the consumer stops."""
        try:
            for item in guarded(iter(self._items)):
                self._free.get()
                if self._is_stopped:
                    return
                self._ready.put((item, None))
            self._ready.put((_END, None))
        except BaseException as error:
            self._ready.put((_END, error))

    def take(self) -> Iterator[Any]:
        """Yield the items, failures in place of those that have raised; raise what ends the thread."""
        while True:
            item, error = self._ready.get()
            if error is not None:
                raise error
            if item is _END:
                return
            self._free.put(None)
            yield item

    def stop(self) -> None:
        """Let `fill` return instead of putting another item."""
        self._is_stopped = True
        self._free.put(None)


def prefetched(items: Iterable[Any], depth: int) -> Iterator[Any]:
    """Yield items, up to `depth` of which a thread has ready.

    A `Failure` stands where an item could not be made; what is no error, such as an exit, is raised. The thread ends when the
    items do, or when the consumer stops, which waits no more than 2 s for an item that is being made.
    """
    ahead = _Ahead(items, depth)
    thread = threading.Thread(target=_fill, args=(ahead, current_worker()), name="prefetch", daemon=True)
    try:
        thread.start()
        yield from ahead.take()
    finally:
        ahead.stop()
        if thread.is_alive():
            thread.join(_LEAVE_S)


def _fill(ahead: _Ahead, worker: Worker | None) -> None:
    """Get items ready for a worker, by functions that may ask which one it is; it may hold what others wait for."""
    if worker is None:
        ahead.fill()
        return
    with being_worker(worker):
        run_freely(ahead.fill)


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Prefetch(Batches):
    """Elements, up to `buffer_size` of which a thread prepares."""

    parent: Plan
    buffer_size: int

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        return raising(prefetched(self.parent.elements(seed_log), self.buffer_size))

    def make_spec(self) -> Any:
        return self.parent.make_spec()

    def cardinality(self) -> int:
        return self.parent.cardinality()

    def rows_in_each(self) -> int | None:
        return rows_in_each(self.parent)
