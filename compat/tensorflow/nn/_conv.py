"""Convolutions."""

from typing import Any

import jax
import jax.numpy as jnp

from tfdist_jax.compat.tensorflow._ops._arguments import compute, invalid, same_type, static_ints
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.nn._spatial import Spatial, check_rank, spatial


def convolution(
    input: Any,
    filters: Any,
    strides: Any = None,
    padding: Any = "VALID",
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> jax.Array:
    """Return a convolution over all axes but the batch and the channels.

    Args:
        input: `[batch, ...space, channels]`, or with the channels second if `data_format` says so.
        filters: `[...space, channels / groups, outputs]`.
        strides: One number, or one for each spatial axis.
        padding: "SAME", "VALID", or pairs of numbers.
        data_format: Such as "NHWC" (channels last, the default) or "NCHW".
        dilations: One number, or one for each spatial axis.
        name: Unused.
    """
    input, filters = same_type(input, filters)
    rank = filters.ndim - 2
    return _convolve(spatial(rank, data_format), input, filters, strides, padding, dilations)


def _convolve(space: Spatial, input: Any, filters: Any, strides: Any, padding: Any, dilations: Any) -> jax.Array:
    check_rank(input, space.rank + 2, "input")
    groups, rest = divmod(space.channels(input.shape), max(filters.shape[-2], 1))
    if rest or not groups or not filters.shape[-2]:
        raise invalid(
            f"The input's channels ({space.channels(input.shape)}) must be a multiple of the filters' "
            f"({filters.shape[-2]})."
        )
    return compute(
        jax.lax.conv_general_dilated,
        input,
        filters,
        space.sizes(strides, "strides"),
        space.padding(padding),
        rhs_dilation=space.sizes(dilations, "dilations"),
        dimension_numbers=(space.layout, f"{space.letters}IO", space.layout),
        feature_group_count=groups,
    )


def conv1d(
    input: Any,
    filters: Any,
    stride: Any,
    padding: Any,
    data_format: str = "NWC",
    dilations: Any = None,
    name: str | None = None,
) -> jax.Array:
    """Return a convolution of `[batch, width, channels]`; arguments as for `convolution`."""
    return _ranked(1, input, filters, stride, padding, data_format, dilations)


def conv2d(
    input: Any,
    filters: Any,
    strides: Any,
    padding: Any,
    data_format: str = "NHWC",
    dilations: Any = None,
    name: str | None = None,
) -> jax.Array:
    """Return a convolution of `[batch, height, width, channels]`; arguments as for `convolution`."""
    return _ranked(2, input, filters, strides, padding, data_format, dilations)


def conv3d(
    input: Any,
    filters: Any,
    strides: Any,
    padding: Any,
    data_format: str = "NDHWC",
    dilations: Any = None,
    name: str | None = None,
) -> jax.Array:
    """Return a convolution of `[batch, depth, height, width, channels]`; arguments as for `convolution`."""
    return _ranked(3, input, filters, strides, padding, data_format, dilations)


def _ranked(
    rank: int, input: Any, filters: Any, strides: Any, padding: Any, data_format: str, dilations: Any
) -> jax.Array:
    input, filters = same_type(input, filters)
    check_rank(filters, rank + 2, "filters")
    return _convolve(spatial(rank, data_format), input, filters, strides, padding, dilations)


def conv_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: Any = "SAME",
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> jax.Array:
    """Return the transpose of a convolution: what its gradient does.

    Args:
        input: `[batch, ...space, channels]`.
        filters: `[...space, outputs, channels]`.
        output_shape: The whole shape of the result.
        strides: Of the convolution.
        padding: Of the convolution.
        data_format: As for `convolution`.
        dilations: Of the convolution.
        name: Unused.
    """
    input, filters = same_type(input, filters)
    space = spatial(filters.ndim - 2, data_format)
    result = jax.ShapeDtypeStruct(static_ints(output_shape, "output_shape"), input.dtype)
    forward = lambda x: _convolve(space, x, filters, strides, padding, dilations)
    return compute(lambda: jax.linear_transpose(forward, result)(input)[0])


def conv1d_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: Any = "SAME",
    data_format: str = "NWC",
    dilations: Any = None,
    name: str | None = None,
) -> jax.Array:
    """Return the transpose of `conv1d`; arguments as for `conv_transpose`."""
    return conv_transpose(input, filters, output_shape, strides, padding, data_format, dilations)


def conv2d_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: Any = "SAME",
    data_format: str = "NHWC",
    dilations: Any = None,
    name: str | None = None,
) -> jax.Array:
    """Return the transpose of `conv2d`; arguments as for `conv_transpose`."""
    return conv_transpose(input, filters, output_shape, strides, padding, data_format, dilations)


def conv3d_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: Any = "SAME",
    data_format: str = "NDHWC",
    dilations: Any = None,
    name: str | None = None,
) -> jax.Array:
    """Return the transpose of `conv3d`; arguments as for `conv_transpose`."""
    return conv_transpose(input, filters, output_shape, strides, padding, data_format, dilations)


def depthwise_conv2d(
    input: Any,
    filter: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> jax.Array:
    """Return a convolution of each channel on its own, with filters `[height, width, channels, multiplier]`."""
    input, filter = same_type(input, filter)
    height, width, channels, multiplier = check_rank(filter, 4, "filter").shape
    grouped = filter.reshape(height, width, 1, channels * multiplier)
    return _convolve(spatial(2, data_format), input, grouped, strides, padding, dilations)


def separable_conv2d(
    input: Any,
    depthwise_filter: Any,
    pointwise_filter: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> jax.Array:
    """Return a depthwise convolution followed by one that mixes the channels."""
    separate = depthwise_conv2d(input, depthwise_filter, strides, padding, data_format, dilations)
    return convolution(separate, pointwise_filter, 1, "VALID", data_format)


def atrous_conv2d(value: Any, filters: Any, rate: Any, padding: Any, name: str | None = None) -> jax.Array:
    """Return `conv2d` with dilated filters."""
    return conv2d(value, filters, 1, padding, dilations=rate)


def atrous_conv2d_transpose(
    value: Any, filters: Any, output_shape: Any, rate: Any, padding: Any, name: str | None = None
) -> jax.Array:
    """Return the transpose of `atrous_conv2d`; arguments as for `conv_transpose`."""
    return conv2d_transpose(value, filters, output_shape, 1, padding, dilations=rate)


def depthwise_conv2d_backprop_input(
    input_sizes: Any,
    filter: Any,
    out_backprop: Any,
    strides: Any,
    padding: Any,
    data_format: str = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
) -> jax.Array:
    """Return the gradient of `depthwise_conv2d` for its input, of which the sizes are given."""
    filter, gradient = same_type(filter, out_backprop)
    given = jax.ShapeDtypeStruct(static_ints(input_sizes, "input_sizes"), gradient.dtype)
    forward = lambda x: depthwise_conv2d(x, filter, strides, padding, data_format, dilations)
    return compute(lambda: jax.linear_transpose(forward, given)(gradient)[0])


def depthwise_conv2d_backprop_filter(
    input: Any,
    filter_sizes: Any,
    out_backprop: Any,
    strides: Any,
    padding: Any,
    data_format: str = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
) -> jax.Array:
    """Return the gradient of `depthwise_conv2d` for its filter, of which the sizes are given."""
    input, gradient = same_type(input, out_backprop)
    given = jax.ShapeDtypeStruct(static_ints(filter_sizes, "filter_sizes"), gradient.dtype)
    forward = lambda x: depthwise_conv2d(input, x, strides, padding, data_format, dilations)
    return compute(lambda: jax.linear_transpose(forward, given)(gradient)[0])


def space_to_depth(input: Any, block_size: int, data_format: str = "NHWC", name: str | None = None) -> jax.Array:
    """Return images whose blocks of pixels have become channels."""
    tensor = _channels_last(convert_to_tensor(input), data_format)
    batch, height, width, channels = tensor.shape
    blocks = compute(
        jnp.reshape, tensor, (batch, height // block_size, block_size, width // block_size, block_size, channels)
    )
    result = blocks.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height // block_size, width // block_size, -1)
    return _back(result, data_format)


def depth_to_space(input: Any, block_size: int, data_format: str = "NHWC", name: str | None = None) -> jax.Array:
    """Return images whose channels have become blocks of pixels."""
    tensor = _channels_last(convert_to_tensor(input), data_format)
    batch, height, width, _ = tensor.shape
    blocks = compute(jnp.reshape, tensor, (batch, height, width, block_size, block_size, -1))
    result = blocks.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height * block_size, width * block_size, -1)
    return _back(result, data_format)


def _channels_last(tensor: jax.Array, data_format: str) -> jax.Array:
    return jnp.moveaxis(tensor, 1, -1) if spatial(2, data_format).channels_first else tensor


def _back(tensor: jax.Array, data_format: str) -> jax.Array:
    return jnp.moveaxis(tensor, -1, 1) if spatial(2, data_format).channels_first else tensor
