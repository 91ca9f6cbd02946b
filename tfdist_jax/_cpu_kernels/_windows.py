"""The parts of arrays that windowed operations meet."""

import itertools
from collections.abc import Iterator, Sequence

import jax
import numpy as np
from jax import lax


def positions(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Give all positions in a window, the last axis fastest."""
    return itertools.product(*map(range, sizes))


def take(array: jax.Array, start: Sequence[int], sizes: Sequence[int], strides: Sequence[int]) -> jax.Array:
    """Return every `strides`-th element from `start` on, of which there are `sizes`."""
    limits = [first + (size - 1) * stride + 1 for first, size, stride in zip(start, sizes, strides, strict=True)]
    return lax.slice(array, start, limits, strides)


def pad(array: jax.Array, padding: Sequence[tuple[int, int]], value: float = 0) -> jax.Array:
    """Return the array with `value` around it; negative padding takes elements away."""
    fill = np.asarray(value, array.dtype)
    return lax.pad(array, fill, [(low, high, 0) for low, high in padding]) if any(map(any, padding)) else array


def interleave(phases: Sequence[jax.Array], strides: Sequence[int]) -> jax.Array:
    """Return an array whose element at `i * strides + phase` is element `i` of that phase's array.

    Args:
        phases: Arrays of one shape, in the order of `positions(strides)`.
        strides: Number of phases of each axis.
    """
    if len(phases) == 1:
        return phases[0]
    shape = phases[0].shape
    split = [axis for axis, stride in enumerate(strides) if stride > 1]
    stacked = lax.reshape(
        lax.concatenate([lax.expand_dims(phase, [0]) for phase in phases], 0),
        (*(strides[axis] for axis in split), *shape),
    )
    order: list[int] = []
    for axis in range(len(shape)):
        order.append(len(split) + axis)
        if axis in split:
            order.append(split.index(axis))
    return lax.reshape(
        lax.transpose(stacked, order), tuple(size * stride for size, stride in zip(shape, strides, strict=True))
    )
