"""Orders of examples: streams of positions, in chunks, that index into arrays."""

import collections
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, final

import numpy as np

CHUNK = 4096
"""How many positions are handled at a time."""


def in_order(count: int) -> Iterator[np.ndarray]:
    """Yield the positions 0 to `count`, in chunks."""
    for start in range(0, count, CHUNK):
        yield np.arange(start, min(start + CHUNK, count))


def cut(positions: np.ndarray) -> Iterator[np.ndarray]:
    """Yield positions in chunks."""
    return (positions[start : start + CHUNK] for start in range(0, len(positions), CHUNK))


def with_last_alone(chunks: Iterable[np.ndarray], count: int) -> Iterator[np.ndarray]:
    """Yield the chunks of `count` positions, the last position as a chunk of its own: who takes it takes nothing else."""
    for chunk in chunks:
        count -= len(chunk)
        if count == 0 and len(chunk) > 1:
            yield chunk[:-1]
            yield chunk[-1:]
        else:
            yield chunk


def regroup(chunks: Iterable[np.ndarray], size: int, *, drop_remainder: bool) -> Iterator[np.ndarray]:
    """Cut a stream of chunks into groups of `size`, the last one smaller unless it is dropped."""
    pending: list[np.ndarray] = []
    waiting = 0
    for chunk in chunks:
        pending.append(chunk)
        waiting += len(chunk)
        if waiting < size:
            continue
        joined = np.concatenate(pending) if len(pending) > 1 else pending[0]
        whole = len(joined) // size * size
        yield from (joined[start : start + size] for start in range(0, whole, size))
        pending, waiting = [joined[whole:]], len(joined) - whole
    if waiting and not drop_remainder:
        yield np.concatenate(pending)


def take(chunks: Iterable[np.ndarray], count: int) -> Iterator[np.ndarray]:
    """Yield the first `count` positions; all if `count` is negative."""
    left = count
    for chunk in chunks:
        if count < 0 or len(chunk) <= left:
            yield chunk
        elif left:
            yield chunk[:left]
        left -= len(chunk)
        if count >= 0 and left <= 0:
            return


def skip(chunks: Iterable[np.ndarray], count: int) -> Iterator[np.ndarray]:
    """Leave the first `count` positions out."""
    left = count
    for chunk in chunks:
        if left < len(chunk):
            yield chunk[left:]
        left = max(0, left - len(chunk))


def every(chunks: Iterable[np.ndarray], step: int, first: int) -> Iterator[np.ndarray]:
    """Yield each `step`-th position from the `first` on."""
    seen = 0
    for chunk in chunks:
        yield chunk[(first - seen) % step :: step]
        seen += len(chunk)


# The most errors in a row that wait for their turn.
_MOST_ERRORS = 64


@final
class shuffled(Iterator[Any]):
    """Items in the order of a buffer from which each next one is drawn, and which then takes the next item.

    With a buffer for all items it is a uniformly random order. An item that raises does so while the buffer is filled, or behind the
    one whose place in the buffer it would have taken.
    """

    def __init__(self, items: Iterable[Any], buffer_size: int, rng: np.random.Generator) -> None:
        """Start with an empty buffer."""
        self._source = iter(items)
        self._size = buffer_size
        self._rng = rng
        self._buffer: list[Any] = []
        self._draws: Iterator[int] | None = None
        self._rest: Iterator[Any] | None = None
        self._errors: collections.deque[Exception] = collections.deque()

    def __next__(self) -> Any:
        if self._errors:
            raise self._errors.popleft()
        if self._rest is not None:
            return next(self._rest)
        while len(self._buffer) < self._size:
            try:
                self._buffer.append(next(self._source))
            except StopIteration:
                return self._next_of_rest()
        try:
            item = self._take()
        except StopIteration:
            return self._next_of_rest()
        if self._draws is None:
            self._draws = _draws(self._rng, len(self._buffer))
        position = next(self._draws)
        drawn, self._buffer[position] = self._buffer[position], item
        return drawn

    def _take(self) -> Any:
        """Return the next item, and keep the errors that come before it."""
        while True:
            try:
                return next(self._source)
            except StopIteration:
                raise
            except Exception as error:
                self._errors.append(error)
                if len(self._errors) > _MOST_ERRORS:
                    raise self._errors.popleft() from None

    def _next_of_rest(self) -> Any:
        self._rng.shuffle(order := np.arange(len(self._buffer)))
        self._rest = map(self._buffer.__getitem__, order)
        return next(self._rest)


def _draws(rng: np.random.Generator, below: int) -> Iterator[int]:
    while True:
        yield from rng.integers(below, size=CHUNK).tolist()


def shuffled_chunks(chunks: Iterable[np.ndarray], buffer_size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Shuffle a stream of positions through a buffer, a chunk at a time."""
    source = iter(chunks)
    start = list(_first(source, buffer_size))
    if not start:
        return
    joined = np.concatenate(start)
    buffer = joined[:buffer_size]
    for chunk in itertools.chain([joined[buffer_size:]], source):
        yield exchanged(buffer, chunk, rng.integers(len(buffer), size=len(chunk)))
    rng.shuffle(buffer)
    yield from cut(buffer)


def _first(chunks: Iterator[np.ndarray], count: int) -> Iterator[np.ndarray]:
    """Yield chunks with at least `count` positions together, if there are so many."""
    while count > 0 and (chunk := next(chunks, None)) is not None:
        yield chunk
        count -= len(chunk)


def exchanged(buffer: np.ndarray, items: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Put `items` into their `places` in `buffer`, one after the other, and return what each has found there."""
    by_place = np.argsort(places, kind="stable")
    ordered = places[by_place]
    is_first = np.ones(len(places), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    is_last = np.roll(is_first, -1)
    found = np.empty_like(items)
    found[by_place[is_first]] = buffer[ordered[is_first]]
    found[by_place[~is_first]] = items[by_place[np.flatnonzero(~is_first) - 1]]
    buffer[ordered[is_last]] = items[by_place[is_last]]
    return found


def numbered(chunks: Iterable[np.ndarray], seed: int, first: int) -> Iterator[np.ndarray]:
    """Yield positions with two more numbers each, as rows: `seed`, and a count from `first` on."""
    for chunk in chunks:
        rows = chunk[:, None] if chunk.ndim == 1 else chunk
        count = np.arange(first, first + len(chunk))
        yield np.column_stack([rows, np.full(len(chunk), seed), count])
        first += len(chunk)


def without_numbers(positions: np.ndarray) -> np.ndarray:
    """Return the positions that `numbered` was given."""
    return positions[:, 0] if positions.shape[1] == 3 else positions[:, :-2]


def keys(positions: np.ndarray) -> np.ndarray:
    """Return positions, with numbers or without, as one value each that can be compared."""
    if positions.ndim == 1:
        return positions
    return np.ascontiguousarray(positions).view([("", positions.dtype)] * positions.shape[1]).ravel()
