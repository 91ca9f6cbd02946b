"""Convolutions as matrix products, as several convolutions, or by channel: whichever is fast for the shape."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.core import ShapedArray

from tfdist_jax._cpu_kernels._depthwise import choose_depthwise, choose_depthwise_gradient
from tfdist_jax._cpu_kernels._windows import Axis, find_axes, positions

# Beyond these, programs become long and gain little.
_MAX_GROUPS = 64
_MAX_OUTPUTS = 49
# With fewer channels, matrices are too thin to gain.
_MIN_CHANNELS = 8


def choose(
    lhs: ShapedArray,
    rhs: ShapedArray,
    *,
    out_sharding: Any,
    **params: Any,
) -> Callable[[jax.Array, jax.Array], jax.Array] | None:
    """Choose for `conv_general_dilated`; `lhs` is an image or what is convolved like one, `rhs` the kernel or its like."""
    if out_sharding is not None and any(out_sharding.spec):
        return None
    if min(map(min, params["padding"]), default=0) < 0:
        return _choose_cropped(lhs, params)
    dtypes = {lhs.dtype, rhs.dtype, np.dtype(params["preferred_element_type"] or lhs.dtype)}
    if len(dtypes) > 1 or lhs.dtype not in (np.float32, np.float64):
        return None
    axes = find_axes(lhs, rhs, params)
    if not all(axis.outputs for axis in axes):
        return None
    for name, choose_by_channel in _DEPTHWISE.items():
        if params[name] > 1:
            return choose_by_channel(lhs, rhs, axes, params) or _choose_groups(name, params)
    spec = params["dimension_numbers"]
    if math.prod(axis.kernel for axis in axes) == 1:
        form = _multiply_by_kernel_position
    elif math.prod(axis.outputs for axis in axes) == 1 or (
        # The gradient of a transposed convolution's kernel, for which XLA multiplies the zeros between elements, too.
        max(params["lhs_dilation"]) > 1
        and math.prod(axis.outputs for axis in axes) <= min(_MAX_OUTPUTS, math.prod(axis.kernel for axis in axes))
        and min(lhs.shape[spec.lhs_spec[0]], rhs.shape[spec.rhs_spec[0]]) >= _MIN_CHANNELS
    ):
        form = _multiply_by_output_position
    else:
        return None
    return functools.partial(form, axes=axes, spec=spec, precision=params["precision"])


def _choose_cropped(lhs: ShapedArray, params: dict[str, Any]) -> Callable[[jax.Array, jax.Array], jax.Array] | None:
    """Let elements be taken away before the convolution that negative padding takes away.

    XLA of jaxlib 0.10 goes on to read beyond an image's end where the padding before it is negative.
    """
    padding, ranges = [], []
    spatial = params["dimension_numbers"].lhs_spec[2:]
    for axis, (low, high), apart in zip(spatial, params["padding"], params["lhs_dilation"], strict=True):
        # Where elements lie apart, some of the zeros between them may remain.
        first, after = max(0, -(low // apart)), max(0, -(high // apart))
        ranges.append(range(first, lhs.shape[axis] - after))
        padding.append((low + first * apart, high + after * apart))
    if not all(ranges):
        return None
    params = {**params, "padding": padding}
    return lambda image, kernel: lax.conv_general_dilated(_take_ranges(image, spatial, ranges), kernel, **params)


_DEPTHWISE = {"feature_group_count": choose_depthwise, "batch_group_count": choose_depthwise_gradient}


def _choose_groups(name: str, params: dict[str, Any]) -> Callable[[jax.Array, jax.Array], jax.Array] | None:
    # XLA sometimes exchanges image and kernel of what has no groups, and crashes where their spatial axes are in another order.
    is_ordered = all([*axes[2:]] == sorted(axes[2:]) for axes in params["dimension_numbers"])
    if params[name] > _MAX_GROUPS or not is_ordered:
        return None
    return functools.partial(
        _convolve_groups, count=params[name], is_of_batch=name == "batch_group_count", params=params
    )


def _convolve_groups(
    lhs: jax.Array, rhs: jax.Array, *, count: int, is_of_batch: bool, params: dict[str, Any]
) -> jax.Array:
    """Convolve each group of channels by itself."""
    spec = params["dimension_numbers"]
    convolve = functools.partial(
        lax.conv_general_dilated, **{**params, "feature_group_count": 1, "batch_group_count": 1}
    )
    inputs = _split(lhs, count, spec.lhs_spec[0 if is_of_batch else 1])
    kernels = _split(rhs, count, spec.rhs_spec[0])
    return lax.concatenate([*map(convolve, inputs, kernels)], spec.out_spec[1])


def _split(array: jax.Array, count: int, axis: int) -> Sequence[jax.Array]:
    return lax.split(array, [array.shape[axis] // count] * count, axis)


def _as_range(numbers: Sequence[int]) -> range:
    """Return equidistant numbers as a range."""
    return range(numbers[0], numbers[-1] + 1, numbers[1] - numbers[0] if len(numbers) > 1 else 1)


def _find_met(
    finders: Sequence[Callable[[int], int | None]], counts: Sequence[int]
) -> list[tuple[range, range]] | None:
    """Return, for each axis, the `n` below its count for which `find(n)` is not None, and what it is.

    None if there are none for some axis.
    """
    met = []
    for find, count in zip(finders, counts, strict=True):
        pairs = [(n, found) for n in range(count) if (found := find(n)) is not None]
        if not pairs:
            return None
        met.append((_as_range([n for n, _ in pairs]), _as_range([found for _, found in pairs])))
    return met


def _take_ranges(array: jax.Array, axes: Sequence[int], ranges: Sequence[range]) -> jax.Array:
    start, limit, strides = [0] * array.ndim, [*array.shape], [1] * array.ndim
    for axis, taken in zip(axes, ranges, strict=True):
        start[axis], limit[axis], strides[axis] = taken[0], taken[-1] + 1, taken.step
    return lax.slice(array, start, limit, strides)


def _multiply_by_output_position(
    lhs: jax.Array, rhs: jax.Array, *, axes: Sequence[Axis], spec: Any, precision: Any
) -> jax.Array:
    """Compute the outputs at each position by one matrix product, of only those elements that meet there."""
    left, right = spec.lhs_spec, spec.rhs_spec
    contracted = ((left[1], *left[2:]), (right[1], *right[2:]))
    channels = (lhs.shape[left[0]], rhs.shape[right[0]])
    parts = []
    for position in positions([axis.outputs for axis in axes]):
        finders = [functools.partial(axis.find_input, output) for axis, output in zip(axes, position, strict=True)]
        met = _find_met(finders, [axis.kernel for axis in axes])
        if met is None:
            parts.append(lax.full(channels, 0, lhs.dtype))
            continue
        part = _take_ranges(lhs, left[2:], [inputs for _, inputs in met])
        kernel = _take_ranges(rhs, right[2:], [at for at, _ in met])
        parts.append(lax.dot_general(part, kernel, (contracted, ((), ())), precision=precision))
    stacked = lax.concatenate([lax.expand_dims(part, [0]) for part in parts], 0)
    whole = lax.reshape(stacked, (*(axis.outputs for axis in axes), *channels))
    order = [len(axes), len(axes) + 1, *range(len(axes))]
    return lax.transpose(whole, [order[spec.out_spec.index(axis)] for axis in range(whole.ndim)])


def _multiply_by_kernel_position(
    lhs: jax.Array, rhs: jax.Array, *, axes: Sequence[Axis], spec: Any, precision: Any
) -> jax.Array:
    """Compute a convolution whose kernel has one position: a matrix product of the inputs that it meets."""
    left, right, out = spec.lhs_spec, spec.rhs_spec, spec.out_spec
    finders = [functools.partial(axis.find_input, at=0) for axis in axes]
    met = _find_met(finders, [axis.outputs for axis in axes])
    shape = [0] * lhs.ndim
    shape[out[0]], shape[out[1]] = lhs.shape[left[0]], rhs.shape[right[0]]
    for at, axis in zip(out[2:], axes, strict=True):
        shape[at] = axis.outputs
    if met is None:
        return lax.full(shape, 0, lhs.dtype)
    part = _take_ranges(lhs, left[2:], [inputs for _, inputs in met])
    kernel = lax.reshape(rhs, [rhs.shape[axis] for axis in sorted(right[:2])])
    product = lax.dot_general(part, kernel, (((left[1],), (int(right[1] > right[0]),)), ((), ())), precision=precision)
    # The product has the image's axes without its channels', then the kernel's.
    kept = [axis for axis in range(lhs.ndim) if axis != left[1]]
    order = [kept.index(left[0]), lhs.ndim - 1, *(kept.index(axis) for axis in left[2:])]
    whole = lax.transpose(product, [order[out.index(axis)] for axis in range(lhs.ndim)])
    padding = [(0, 0, 0)] * lhs.ndim
    for at, axis, (outputs, _) in zip(out[2:], axes, met, strict=True):
        padding[at] = (outputs[0], axis.outputs - 1 - outputs[-1], outputs.step - 1)
    return lax.pad(whole, np.zeros((), lhs.dtype), padding)
