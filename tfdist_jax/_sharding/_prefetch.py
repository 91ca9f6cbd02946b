"""Batches ahead of the step: read in a thread, placed on the devices, and still with a position to come back to."""

import atexit
import collections
import contextvars
import copy
import dataclasses
import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self, final

PlaceAll = Callable[[Iterator[Any]], Iterator[Any]]

_EXIT_S = 5.0


class Prefetched(Iterator[Any]):
    """Placed batches, of which some are on their way before they are asked for.

    Of a source that has `get_state` and `set_state`, such as Grain's iterators, it has them too: they are about the batch last given
    out, not about those that have been read already.
    """

    def __init__(self, source: Iterator[Any], place_all: PlaceAll, *, depth: int, counts: Callable[[Any], Any]) -> None:
        """Read nothing yet, see `make_prefetched`."""
        self._source = source
        self._place_all = place_all
        self._depth = depth
        self._counts = counts
        self._begin()

    def _begin(self) -> None:
        self._reader: _Reader | None = None
        self._placed: Iterator[Any] | None = None
        self._failure: BaseException | None = None
        self._is_closed = False

    def __iter__(self) -> Self:
        """Return itself: there is one pass over the batches."""
        return self

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            RuntimeError: If an earlier call has failed, so that batches may be missing, or after `close`.
        """
        if self._is_closed:
            raise RuntimeError("No batches after `close`. Make another one with `strategy.prefetch`.")
        if self._failure is not None:
            raise RuntimeError(
                "Batches may be missing since an earlier one has failed; begin again."
            ) from self._failure
        if self._placed is None:
            self._reader = _Reader(self._source, self._depth, self._counts)
            self._placed = self._place_all(self._reader)
        try:
            batch = next(self._placed)
            self._given_out()
            return batch
        except StopIteration:
            raise
        except BaseException as error:
            self._failure = error
            raise

    def _given_out(self) -> None:
        """Take note of where the batch was."""

    def close(self) -> None:
        """Stop reading. What has been read but not given out is dropped."""
        self._is_closed = True
        self._end()

    def _end(self) -> None:
        """Drop what has been read."""
        if self._reader is not None:
            self._reader.end()
        end_placing = getattr(self._placed, "close", None)
        if end_placing is not None:
            end_placing()


@final
class PrefetchedWithState(Prefetched):
    """Batches of a source that can say where it is."""

    def _begin(self) -> None:
        super()._begin()
        self._state: Any = None

    def _given_out(self) -> None:
        # A process whose batches have ended is given those of the others.
        if self._reader is not None and self._reader.states:
            self._state = self._reader.states.popleft()

    def get_state(self) -> Any:
        """Return where the source was after the batch last given out."""
        if self._reader is None:
            return self._source.get_state()  # pyright: ignore[reportAttributeAccessIssue]
        return self._reader.first_state if self._state is None else self._state

    def set_state(self, state: Any) -> None:
        """Go on behind the batch at which `get_state` returned a state."""
        if self._reader is not None:
            self._end()
            self._reader.wait()
        self._source.set_state(state)  # pyright: ignore[reportAttributeAccessIssue]
        self._begin()


def make_prefetched(
    source: Iterable[Any], place_all: PlaceAll, *, depth: int = 2, counts: Callable[[Any], Any] = lambda batch: True
) -> Prefetched:
    """Make an iterator over placed batches, which has a state if the source's iterator has one.

    Args:
        source: Host batches.
        place_all: Places the batches of an iterator, in order, one for each that counts, and may add others behind them.
        depth: How many batches a thread reads ahead; if 0, they are read when they are asked for, in the thread that asks.
        counts: Tells whether a batch is placed; others are left out.
    """
    if depth < 0:
        raise ValueError(f"`depth` is the number of batches that are on their way, 0 for none, but is {depth}.")
    iterator = iter(source)
    return (PrefetchedWithState if _has_state(iterator) else Prefetched)(
        iterator, place_all, depth=depth, counts=counts
    )


def is_read_ahead(source: object) -> bool:
    """Whether an iterator is being read by a `Prefetched`, so that it is farther than the batches that have been used."""
    reader = _readers.get(id(source))
    return reader is not None and reader.is_ahead


_readers: "weakref.WeakValueDictionary[int, _Reader]" = weakref.WeakValueDictionary()


def _has_state(source: Any) -> bool:
    return callable(getattr(source, "get_state", None)) and callable(getattr(source, "set_state", None))


@final
class _Reader(Iterator[Any]):
    """Reads an iterator, in a thread if there is a depth, and notes where it was after each of its elements.

    Attributes:
        first_state: Where it was at the beginning.
        states: Where it was after each element that has been read and counts, the oldest first, to be taken out by whoever gives
            them out.
        is_ahead: Whether it has read anything.
    """

    def __init__(self, source: Iterator[Any], depth: int, counts: Callable[[Any], Any]) -> None:
        self.states: collections.deque[Any] = collections.deque()
        self.is_ahead = False
        self._counts = counts
        self._read = _Reading(source)
        self._thread: _Thread | None = None
        self._is_over = False
        self.first_state = self._read.state()
        _readers[id(source)] = self
        if depth:
            self._thread = _Thread(self._read, depth)
            weakref.finalize(self, self._thread.end).atexit = False

    def __next__(self) -> Any:
        if self._is_over:
            raise StopIteration
        self.is_ahead = True
        found = self._thread.take() if self._thread is not None else self._read()
        if isinstance(found, _Failure):
            self._is_over = True
            raise found.error
        element, state = found
        if self._read.has_state and self._counts(element):
            self.states.append(state)
        return element

    def end(self) -> None:
        """Read nothing more."""
        self._is_over = True
        if self._thread is not None:
            self._thread.end()

    def wait(self) -> None:
        """Wait until nothing is being read."""
        if self._thread is not None:
            self._thread.wait()


@final
@dataclasses.dataclass(frozen=True)
class _Failure:
    """That nothing could be read, which may be because all has been."""

    error: BaseException


@final
class _Reading:
    """Reads an element and says where the source is then."""

    def __init__(self, source: Iterator[Any]) -> None:
        self._source: Any = source
        self.has_state = _has_state(source)

    def __call__(self) -> tuple[Any, Any] | _Failure:
        try:
            return next(self._source), self.state()
        except BaseException as error:
            return _Failure(error)

    def state(self) -> Any:
        # Some return the same object each time, which changes.
        return copy.deepcopy(self._source.get_state()) if self.has_state else None


@final
class _Thread:
    """A thread that reads until as much is read as is free. It knows nothing of the reader, which is dropped with whoever uses it."""

    def __init__(self, read: _Reading, depth: int) -> None:
        self._read = read
        self._free = threading.Semaphore(depth)
        # Not a SimpleQueue, which leaves no frame of Python's own: who waits in one of ours seems to wait for a step.
        self._ready: queue.Queue[tuple[Any, Any] | _Failure] = queue.Queue()
        self._is_ended = False
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), daemon=True, name="tfdist_jax prefetch")
        self._thread.start()
        atexit.register(self._finish)

    def take(self) -> tuple[Any, Any] | _Failure:
        found = self._ready.get()
        self._free.release()
        return found

    def end(self) -> None:
        self._is_ended = True
        self._free.release()

    def wait(self, timeout: float | None = None) -> None:
        self._thread.join(timeout)

    def _finish(self) -> None:
        """End the thread before Python ends: inside of a library it would abort the process then."""
        self.end()
        self.wait(_EXIT_S)

    def _run(self) -> None:
        while True:
            self._free.acquire()
            if self._is_ended:
                break
            found = self._read()
            self._ready.put(found)
            if isinstance(found, _Failure):
                break
        atexit.unregister(self._finish)
