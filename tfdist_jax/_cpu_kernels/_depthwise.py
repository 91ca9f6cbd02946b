"""Convolutions with one channel in each group, by products of shifted arrays."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.core import ShapedArray

from tfdist_jax._cpu_kernels._windows import Axis, interleave, pad, positions, take

# Programs grow with the window; beyond this, XLA's loop is used.
_MAX_POSITIONS = 49
# How many products are added at once for a kernel's gradient, for all of its positions and for one of them.
_MAX_PRODUCTS = 256
_MAX_ROWS = 16


def choose_depthwise(
    lhs: ShapedArray, rhs: ShapedArray, axes: Sequence[Axis], params: dict[str, Any]
) -> Callable[[jax.Array, jax.Array], jax.Array] | None:
    """Choose for a convolution of groups of one channel, `rhs` being the kernel; the gradient of the input is one, too."""
    spec = params["dimension_numbers"]
    if rhs.shape[spec.rhs_spec[1]] != 1 or math.prod(axis.kernel for axis in axes) > _MAX_POSITIONS:
        return None
    if any(axis.dilation > 1 for axis in axes) and any(axis.stride > 1 for axis in axes):
        return None
    return functools.partial(_add_shifted, axes=axes, spec=spec)


def _add_shifted(lhs: jax.Array, rhs: jax.Array, *, axes: Sequence[Axis], spec: Any) -> jax.Array:
    """Add, for each position in the kernel, the shifted image times the kernel's numbers there.

    Where elements of the image lie apart, the outputs are several phases that meet their own positions of the kernel each.
    """
    # Batch, spatial axes, channels: of the image; spatial axes, channels: of the kernel.
    image = lax.transpose(lhs, (spec.lhs_spec[0], *spec.lhs_spec[2:], spec.lhs_spec[1]))
    kernel = lax.transpose(rhs, (*spec.rhs_spec[2:], spec.rhs_spec[1], spec.rhs_spec[0]))
    channels = kernel.shape[-1]
    image = _repeat_channels(image, channels // image.shape[-1])
    dilation = [axis.dilation for axis in axes]
    met = {phase: _find_met(phase, axes) for phase in positions(dilation)}
    shape = (image.shape[0], *(-(-axis.outputs // axis.dilation) for axis in axes), channels)
    padded, before = _pad_to_reach([first for pairs in met.values() for _, first in pairs], image, shape, axes)

    def multiply(at: tuple[int, ...], first: tuple[int, ...]) -> jax.Array:
        weights = lax.reshape(take(kernel, (*at, 0, 0), (*[1] * len(at), 1, channels), [1] * kernel.ndim), [channels])
        start = (0, *(n + low for n, low in zip(first, before, strict=True)), 0)
        part = take(padded, start, shape, (1, *(axis.stride for axis in axes), 1))
        return lax.mul(part, lax.broadcast_in_dim(weights, shape, [len(shape) - 1]))

    def add(pairs: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> jax.Array:
        products = [multiply(at, first) for at, first in pairs]
        return functools.reduce(lax.add, products) if products else lax.full(shape, 0, lhs.dtype)

    whole = interleave([*map(add, met.values())], (1, *dilation, 1))
    sizes = (image.shape[0], *(axis.outputs for axis in axes), channels)
    return _order_axes(take(whole, [0] * whole.ndim, sizes, [1] * whole.ndim), spec)


def _find_met(output: Sequence[int], axes: Sequence[Axis]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the positions in the kernel that meet elements of the image for an output, each with the element's index."""
    pairs = []
    for at in positions([axis.kernel for axis in axes]):
        places = [axis.place(o, n) for axis, o, n in zip(axes, output, at, strict=True)]
        if not any(between for _, between in places):
            pairs.append((at, tuple(index for index, _ in places)))
    return pairs


def _pad_to_reach(
    firsts: Sequence[tuple[int, ...]], image: jax.Array, shape: Sequence[int], axes: Sequence[Axis]
) -> tuple[jax.Array, list[int]]:
    """Return the image with zeros where parts of `shape` from `firsts` on have elements, and their number before it."""
    before, after = [], []
    for starts, axis, count in zip(zip(*firsts, strict=True), axes, shape[1:-1], strict=True):
        before.append(max(0, -min(starts)))
        after.append(max(0, max(starts) + (count - 1) * axis.stride + 1 - axis.inputs))
    return pad(image, [(0, 0), *zip(before, after, strict=True), (0, 0)]), before


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
    lhs: ShapedArray, rhs: ShapedArray, axes: Sequence[Axis], params: dict[str, Any]
) -> Callable[[jax.Array, jax.Array], jax.Array] | None:
    """Choose for the gradient of such a convolution's kernel: a convolution of the image, `rhs` being the output's gradient."""
    spec = params["dimension_numbers"]
    has_one_channel = lhs.shape[spec.lhs_spec[0]] == params["batch_group_count"]
    if not has_one_channel or len(axes) not in (1, 2) or any(axis.dilation > 1 for axis in axes):
        return None
    return functools.partial(_correlate_by_rows, axes=axes, padding=params["padding"], spec=spec)


def _count_rows(height: int, limit: int) -> int:
    """Return how many rows to take at once: at most `limit`, and so that none are left over if that makes many."""
    divisor = max(n for n in range(1, min(height, limit) + 1) if height % n == 0)
    return divisor if 2 * divisor >= limit else min(height, limit)


# Of an axis that a convolution over one axis does not have.
_NO_AXIS = Axis(1, 1, 1, 1, 0, 1, 1)


def _correlate_by_rows(
    lhs: jax.Array, rhs: jax.Array, *, axes: Sequence[Axis], padding: Sequence[tuple[int, int]], spec: Any
) -> jax.Array:
    """Add the products of image and gradient for each position in the kernel, some rows at a time.

    What is written out for some rows vectorizes; XLA's loops over many rows add one number after the other.
    """
    image = lax.transpose(lhs, (spec.lhs_spec[1], *spec.lhs_spec[2:], spec.lhs_spec[0]))
    gradient = lax.transpose(rhs, (spec.rhs_spec[1], *spec.rhs_spec[2:], spec.rhs_spec[0]))
    image = pad(image, [(0, 0), *padding, (0, 0)])
    if len(axes) == 1:
        image, gradient = lax.expand_dims(image, [1]), lax.expand_dims(gradient, [1])
    vertical, horizontal = (_NO_AXIS, *axes)[-2:]
    batch, height, width, channels = gradient.shape
    image = _repeat_channels(image, channels // image.shape[-1])
    window = (vertical.outputs, horizontal.outputs)
    rows = _count_rows(height, min(_MAX_ROWS, max(1, _MAX_PRODUCTS // math.prod(window))))
    images = max(n for n in range(1, _MAX_ROWS // rows + 1) if batch % n == 0)

    def add_rows(first: Any, row: Any, count: int, sums: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
        reach = (count - 1) * vertical.kernel_dilation + (window[0] - 1) * vertical.stride + 1
        start = (first, row * vertical.kernel_dilation, 0, 0)
        part = lax.dynamic_slice(image, start, (images, reach, *image.shape[2:]))
        slope = lax.dynamic_slice(gradient, (first, row, 0, 0), (images, count, width, channels))
        added = []
        for (down, right), total in zip(positions(window), sums, strict=True):
            for n, m in positions((images, count)):
                start = (n, m * vertical.kernel_dilation + down * vertical.stride, right * horizontal.stride, 0)
                met = take(part, start, (1, 1, width, channels), (1, 1, horizontal.kernel_dilation, 1))
                product = lax.mul(met, take(slope, (n, m, 0, 0), (1, 1, width, channels), [1] * 4))
                total = lax.add(total, lax.reshape(product, (width, channels)))
            added.append(total)
        return tuple(added)

    sums = (lax.full((width, channels), 0, lhs.dtype),) * math.prod(window)
    blocks, left = divmod(height, rows)
    for start, count, repeats in ((0, rows, blocks), (blocks * rows, left, 1)):
        if count:
            add_block = lambda number, sums, start=start, count=count, repeats=repeats: add_rows(
                number // repeats * images, start + number % repeats * rows, count, sums
            )
            sums = lax.fori_loop(0, batch // images * repeats, add_block, sums)
    stacked = lax.concatenate([lax.expand_dims(lax.reduce_sum(total, [0]), [0]) for total in sums], 0)
    return _order_axes(lax.reshape(stacked, (1, *(axis.outputs for axis in axes), channels)), spec)
