"""The parts of arrays that windowed operations meet."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax
from jax.core import ShapedArray


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


class Axis(NamedTuple):
    """One spatial axis: output `o` is the sum over `k` of what lies at `(o * stride + k * kernel_dilation - low) / dilation`."""

    inputs: int
    kernel: int
    outputs: int
    stride: int
    low: int
    dilation: int
    kernel_dilation: int

    def place(self, output: int, at: int) -> tuple[int, int]:
        """Return the index of the input at or before what the kernel's element `at` meets for an output, and the distance from it."""
        return divmod(output * self.stride + at * self.kernel_dilation - self.low, self.dilation)

    def find_input(self, output: int, at: int) -> int | None:
        """Return the input that is multiplied by the kernel's element `at` for an output; None where there is a zero."""
        index, between = self.place(output, at)
        return index if not between and 0 <= index < self.inputs else None


def find_axes(lhs: ShapedArray, rhs: ShapedArray, params: dict[str, Any]) -> list[Axis]:
    """Return the spatial axes of a convolution, in the order of its parameters."""
    spec = params["dimension_numbers"]
    axes = []
    for number, (left, right) in enumerate(zip(spec.lhs_spec[2:], spec.rhs_spec[2:], strict=True)):
        dilation, kernel_dilation = params["lhs_dilation"][number], params["rhs_dilation"][number]
        low, high = params["padding"][number]
        stride = params["window_strides"][number]
        size = (lhs.shape[left] - 1) * dilation + 1 + low + high
        width = (rhs.shape[right] - 1) * kernel_dilation + 1
        outputs = max((size - width) // stride + 1, 0)
        axes.append(Axis(lhs.shape[left], rhs.shape[right], outputs, stride, low, dilation, kernel_dilation))
    return axes
