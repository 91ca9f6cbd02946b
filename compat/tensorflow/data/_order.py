"""Orders of examples: streams of positions, in chunks, that index into arrays."""

import itertools
from collections.abc import Iterable, Iterator

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


def shuffled(items: Iterable, buffer_size: int, rng: np.random.Generator) -> Iterator:
    """Yield items in the order of a buffer from which each next one is drawn, and which then takes the next item.

    With a buffer for all items it is a uniformly random order.
    """
    source = iter(items)
    buffer = list(itertools.islice(source, buffer_size))
    draws = _draws(rng, len(buffer))
    for item in source:
        position = next(draws)
        drawn, buffer[position] = buffer[position], item
        yield drawn
    rng.shuffle(order := np.arange(len(buffer)))
    yield from (buffer[i] for i in order)


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
