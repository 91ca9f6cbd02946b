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
    """Shuffle a stream of positions through a buffer."""
    positions = itertools.chain.from_iterable(chunk.tolist() for chunk in chunks)
    mixed = shuffled(positions, buffer_size, rng)
    while chunk := list(itertools.islice(mixed, CHUNK)):
        yield np.array(chunk)
