"""Convolutions with one channel in each group, by products of shifted arrays."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.core import ShapedArray

from tfdist_jax._cpu_kernels._windows import interleave, pad, positions, take

# Programs grow with the window; beyond this, XLA's loop is used.
_MAX_POSITIONS = 49
# How many products are added at once for a kernel's gradient, for all of its positions and for one of them.
_MAX_PRODUCTS = 256
_MAX_ROWS = 16


def choose_depthwise(
    lhs: ShapedArray, rhs: ShapedArray, params: dict[str, Any]
) -> Callable[[jax.Array, jax.Array], jax.Array] | None:
    """Choose for a convolution of groups of one channel, `rhs` being the kernel; the gradient of the input is one, too."""
    spec = params["dimension_numbers"]
    if rhs.shape[spec.rhs_spec[1]] != 1 or math.prod(rhs.shape[axis] for axis in spec.rhs_spec[2:]) > _MAX_POSITIONS:
        return None
    if max(params["lhs_dilation"]) > 1 and max(params["window_strides"]) > 1:
        return None
    return functools.partial(_add_shifted, params=params)


def _add_shifted(lhs: jax.Array, rhs: jax.Array, *, params: dict[str, Any]) -> jax.Array:
    """Add, for each position in the kernel, the shifted image times the kernel's numbers there.

    Where elements of the image lie apart, every so manieth output is a phase that meets its own positions of the kernel.
    """
    spec = params["dimension_numbers"]
    # Batch, spatial axes, channels: of the image; spatial axes, channels: of the kernel.
    image = lax.transpose(lhs, (spec.lhs_spec[0], *spec.lhs_spec[2:], spec.lhs_spec[1]))
    sizes = image.shape[1:-1]
    kernel = lax.transpose(rhs, (*spec.rhs_spec[2:], spec.rhs_spec[1], spec.rhs_spec[0]))
    window, channels = kernel.shape[:-2], kernel.shape[-1]
    image = _repeat_channels(image, channels // image.shape[-1])
    strides, dilation = params["window_strides"], params["lhs_dilation"]
    lows = [low for low, _ in params["padding"]]
    outputs = [
        ((size - 1) * apart + 1 + low + high - (width - 1) * kernel_apart - 1) // stride + 1
        for size, apart, (low, high), width, kernel_apart, stride in zip(
            sizes, dilation, params["padding"], window, params["rhs_dilation"], strides, strict=True
        )
    ]
    if min(outputs) <= 0:
        return _order_axes(lax.full((image.shape[0], *(max(n, 0) for n in outputs), channels), 0, lhs.dtype), spec)
    counts = [-(-count // apart) for count, apart in zip(outputs, dilation, strict=True)]
    # For each phase of the output, the positions in the kernel that meet elements there.
    met = {
        phase: _find_met(phase, window, dilation=dilation, kernel_dilation=params["rhs_dilation"], lows=lows)
        for phase in positions(dilation)
    }
    firsts = [first for pairs in met.values() for _, first in pairs]
    before = [max(0, -min(axis)) for axis in zip(*firsts, strict=True)]
    after = [
        max(0, max(axis) + (count - 1) * stride + 1 - size)
        for axis, count, stride, size in zip(zip(*firsts, strict=True), counts, strides, sizes, strict=True)
    ]
    padded = pad(image, [(0, 0), *zip(before, after, strict=True), (0, 0)])
    shape = (image.shape[0], *counts, channels)

    def multiply(at: tuple[int, ...], first: tuple[int, ...]) -> jax.Array:
        start = (0, *(n + low for n, low in zip(first, before, strict=True)), 0)
        weights = lax.reshape(take(kernel, (*at, 0, 0), (*[1] * len(at), 1, channels), [1] * kernel.ndim), [channels])
        part = take(padded, start, shape, (1, *strides, 1))
        return lax.mul(part, lax.broadcast_in_dim(weights, shape, [len(shape) - 1]))

    phases = [
        functools.reduce(lax.add, (multiply(at, first) for at, first in pairs))
        if pairs
        else lax.full(shape, 0, lhs.dtype)
        for pairs in met.values()
    ]
    whole = interleave(phases, (1, *dilation, 1))
    return _order_axes(take(whole, [0] * whole.ndim, (image.shape[0], *outputs, channels), [1] * whole.ndim), spec)


def _find_met(
    output: Sequence[int],
    window: Sequence[int],
    *,
    dilation: Sequence[int],
    kernel_dilation: Sequence[int],
    lows: Sequence[int],
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the positions in the kernel that meet elements of the image for an output, each with the element's index."""
    pairs = []
    for at in positions(window):
        places = [o + n * apart - low for o, n, apart, low in zip(output, at, kernel_dilation, lows, strict=True)]
        if not any(place % apart for place, apart in zip(places, dilation, strict=True)):
            pairs.append((at, tuple(place // apart for place, apart in zip(places, dilation, strict=True))))
    return pairs


def _repeat_channels(image: jax.Array, times: int) -> jax.Array:
    """Repeat each channel, which is the last axis."""
    if times == 1:
        return image
    shape = (*image.shape, times)
    return lax.reshape(
        lax.broadcast_in_dim(image, shape, range(image.ndim)), (*image.shape[:-1], image.shape[-1] * times)
    )


def _order_axes(image: jax.Array, spec: Any) -> jax.Array:
    """Bring batch, spatial axes and channels into the order of the output."""
    order = [0, image.ndim - 1, *range(1, image.ndim - 1)]
    return lax.transpose(image, [order[spec.out_spec.index(axis)] for axis in range(image.ndim)])


def choose_depthwise_gradient(
    lhs: ShapedArray, rhs: ShapedArray, params: dict[str, Any]
) -> Callable[[jax.Array, jax.Array], jax.Array] | None:
    """Choose for the gradient of such a convolution's kernel: a convolution of the image, `rhs` being the output's gradient."""
    spec = params["dimension_numbers"]
    has_one_channel = lhs.shape[spec.lhs_spec[0]] == params["batch_group_count"]
    if not has_one_channel or len(params["padding"]) not in (1, 2) or max(params["lhs_dilation"]) > 1:
        return None
    return functools.partial(_correlate_by_rows, params=params)


def _correlate_by_rows(lhs: jax.Array, rhs: jax.Array, *, params: dict[str, Any]) -> jax.Array:
    """Add the products of image and gradient for each position in the kernel, some rows at a time.

    XLA adds a few rows in one loop over channels, which vectorizes, where it adds many one number after the other.
    """
    spec = params["dimension_numbers"]
    image = lax.transpose(lhs, (spec.lhs_spec[1], *spec.lhs_spec[2:], spec.lhs_spec[0]))
    gradient = lax.transpose(rhs, (spec.rhs_spec[1], *spec.rhs_spec[2:], spec.rhs_spec[0]))
    # Between elements of the gradient, and between positions in the kernel.
    apart, kernel_apart = params["rhs_dilation"], params["window_strides"]
    padding = params["padding"]
    if len(padding) == 1:
        image, gradient = lax.expand_dims(image, [1]), lax.expand_dims(gradient, [1])
        apart, kernel_apart, padding = (1, *apart), (1, *kernel_apart), ((0, 0), *padding)
    batch, height, width, channels = gradient.shape
    window = [
        (size + low + high - (count - 1) * step - 1) // between + 1
        for size, (low, high), count, step, between in zip(
            image.shape[1:], padding, (height, width), apart, kernel_apart, strict=False
        )
    ]
    image = _repeat_channels(pad(image, [(0, 0), *padding, (0, 0)]), channels // image.shape[-1])
    rows = max(1, min(height, _MAX_ROWS, _MAX_PRODUCTS // math.prod(window)))
    images = max(n for n in range(1, max(1, _MAX_ROWS // rows) + 1) if batch % n == 0)
    blocks = -(-height // rows)
    needed = (blocks * rows - 1) * apart[0] + (window[0] - 1) * kernel_apart[0] + 1
    gradient = pad(gradient, [(0, 0), (0, blocks * rows - height), (0, 0), (0, 0)])
    image = pad(image, [(0, 0), (0, max(0, needed - image.shape[1])), (0, 0), (0, 0)])
    taken = (rows - 1) * apart[0] + (window[0] - 1) * kernel_apart[0] + 1

    def add_block(number: jax.Array, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        first, block = number // blocks * images, number % blocks
        part = lax.dynamic_slice(image, (first, block * rows * apart[0], 0, 0), (images, taken, *image.shape[2:]))
        slope = lax.dynamic_slice(gradient, (first, block * rows, 0, 0), (images, rows, width, channels))
        added = []
        for (row, column), total in zip(positions(window), sums, strict=True):
            for n, m in positions((images, rows)):
                start = (n, m * apart[0] + row * kernel_apart[0], column * kernel_apart[1], 0)
                met = take(part, start, (1, 1, width, channels), (1, 1, apart[1], 1))
                product = lax.mul(met, take(slope, (n, m, 0, 0), (1, 1, width, channels), [1] * 4))
                total = lax.add(total, lax.reshape(product, (width, channels)))
            added.append(total)
        return tuple(added)

    zeros = lax.full((width, channels), 0, lhs.dtype)
    sums = lax.fori_loop(0, batch // images * blocks, add_block, (zeros,) * math.prod(window))
    stacked = lax.concatenate([lax.expand_dims(lax.reduce_sum(total, [0]), [0]) for total in sums], 0)
    sizes = [*window][-len(params["padding"]) :]
    return _order_axes(lax.reshape(stacked, (1, *sizes, channels)), spec)
