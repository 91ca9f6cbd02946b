"""Largest pixels of windows: where they are, and with a filter added to them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tfdist_jax.compat.tensorflow._ops._arguments import invalid, require, same_type
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.nn._space_to_batch import pixels
from tfdist_jax.compat.tensorflow.nn._spatial import check_rank, spatial


class MaxPoolWithArgmax(NamedTuple):
    """The largest entries of windows, and where in the flat image they are."""

    output: jax.Array
    argmax: jax.Array


def max_pool_with_argmax(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str = "NHWC",
    output_dtype: Any = _dtypes.int64,
    include_batch_in_index: bool = False,
    name: str | None = None,
) -> MaxPoolWithArgmax:
    """Return the largest entries of windows and their places, as indices into each image made flat.

    See https://www.tensorflow.org/api_docs/python/tf/nn/max_pool_with_argmax.
    """
    if data_format != "NHWC":
        raise ValueError(
            f"Values for parameter 'data_format' other than 'NHWC' are not supported, got {data_format!r}."
        )
    images, space = check_rank(convert_to_tensor(input), 4, "input"), spatial(2, data_format)
    window = space.sizes(ksize, "ksize"), space.sizes(strides, "strides"), (1, 1), padding
    lowest = -jnp.inf if as_dtype(images.dtype).is_floating else as_dtype(images.dtype).min
    batch, *one = images.shape
    places = jnp.arange(images[0].size, dtype=jnp.int64).reshape(1, *one)
    if include_batch_in_index:
        places = places + images[0].size * jnp.arange(batch, dtype=jnp.int64)[:, None, None, None]
    values, numbers = jnp.stack(pixels(images, *window, filler=lowest)), jnp.stack(pixels(places, *window, filler=-1))
    best = jnp.argmax(values, 0)[None]
    found = (
        jnp.take_along_axis(values, best, 0)[0],
        jnp.take_along_axis(jnp.broadcast_to(numbers, values.shape), best, 0)[0],
    )
    return MaxPoolWithArgmax(found[0], found[1].astype(as_dtype(output_dtype).dtype))


def dilation2d(
    input: Any,
    filters: Any,
    strides: Any,
    padding: str,
    data_format: str,
    dilations: Any,
    name: str | None = None,
) -> jax.Array:
    """Return the largest sums of windows `[batch, height, width, depth]` and a filter `[height, width, depth]`.

    See https://www.tensorflow.org/api_docs/python/tf/nn/dilation2d.
    """
    if data_format != "NHWC":
        raise ValueError(f"`data_format` values other than 'NHWC' are not supported. Received: {data_format}")
    images, kernel = same_type(input, filters)
    check_rank(require(images, "fi", "nn.dilation2d"), 4, "input")
    if check_rank(kernel, 3, "filters").shape[-1] != images.shape[-1]:
        raise invalid(f"filters of depth {kernel.shape[-1]} do not fit an input of depth {images.shape[-1]}.")
    space = spatial(2, data_format)
    steps, rates = space.sizes(strides, "strides"), space.sizes(dilations, "dilations")
    lowest = -jnp.inf if as_dtype(images.dtype).is_floating else as_dtype(images.dtype).min
    parts = pixels(images, kernel.shape[:2], steps, rates, padding, filler=lowest)
    flat = kernel.reshape(-1, kernel.shape[-1])
    return jnp.max(jnp.stack([part + row for part, row in zip(parts, flat, strict=True)]), 0)


def erosion2d(
    value: Any,
    filters: Any,
    strides: Any,
    padding: str,
    data_format: str,
    dilations: Any,
    name: str | None = None,
) -> jax.Array:
    """Return the smallest differences of windows and a filter; arguments as for `dilation2d`.

    See https://www.tensorflow.org/api_docs/python/tf/nn/erosion2d.
    """
    turned = jnp.flip(convert_to_tensor(filters), (0, 1))
    return -dilation2d(-convert_to_tensor(value), turned, strides, padding, data_format, dilations)
