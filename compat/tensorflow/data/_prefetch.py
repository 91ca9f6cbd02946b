"""A thread that prepares elements ahead of their use."""

import dataclasses
import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any, final

from tfdist_jax.compat.tensorflow.data._plan import Batches, Plan, rows_in_each
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog

_END = object()
_POLL_S = 0.1


def prefetched(items: Iterable[Any], depth: int) -> Iterator[Any]:
    """Yield items, up to `depth` of which a thread has ready.

    An exception in the thread is raised where its item would have come. The thread ends when the items do, or when
    the consumer stops.
    """
    ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(maxsize=depth)
    stopped = threading.Event()

    def put(item: Any, error: BaseException | None = None) -> None:
        while not stopped.is_set():
            try:
                ready.put((item, error), timeout=_POLL_S)
                return
            except queue.Full:
                continue

    def work() -> None:
        try:
            for item in items:
                put(item)
                if stopped.is_set():
                    return
            put(_END)
        except BaseException as error:
            put(_END, error)

    thread = threading.Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    try:
        yield from _until_end(ready)
    finally:
        stopped.set()
        thread.join()


def _until_end(ready: queue.Queue[tuple[Any, BaseException | None]]) -> Iterator[Any]:
    while True:
        item, error = ready.get()
        if error is not None:
            raise error
        if item is _END:
            return
        yield item


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Prefetch(Batches):
    """Elements, up to `buffer_size` of which a thread prepares."""

    parent: Plan
    buffer_size: int

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        return prefetched(self.parent.elements(seed_log), self.buffer_size)

    def make_spec(self) -> Any:
        return self.parent.make_spec()

    def cardinality(self) -> int:
        return self.parent.cardinality()

    def rows_in_each(self) -> int | None:
        return rows_in_each(self.parent)
