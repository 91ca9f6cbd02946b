"""Pooling over windows."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import compute
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.nn._spatial import Spatial, spatial


def _max(tensor: jax.Array, *window: Any) -> jax.Array:
    dtype = as_dtype(tensor.dtype)
    lowest = np.asarray(-np.inf if dtype.is_floating else dtype.min, tensor.dtype)
    return jax.lax.reduce_window(tensor, lowest, jax.lax.max, *window)


def _average(tensor: jax.Array, *window: Any) -> jax.Array:
    """Return means over the entries that exist: padding counts nothing."""
    zero = np.zeros((), tensor.dtype)
    total = jax.lax.reduce_window(tensor, zero, jax.lax.add, *window)
    return total / jax.lax.reduce_window(jnp.ones_like(tensor), zero, jax.lax.add, *window)


def _pool(
    function: Callable[..., Any],
    space: Spatial,
    input: Any,
    ksize: Any,
    strides: Any,
    padding: Any,
    dilations: Any = None,
) -> jax.Array:
    window = space.everywhere(space.sizes(ksize, "ksize"))
    steps = space.everywhere(space.sizes(strides, "strides"))
    edges = space.padding_everywhere(space.padding(padding))
    ones = (1,) * len(window)
    return compute(
        function,
        convert_to_tensor(input),
        window,
        steps,
        edges,
        ones,
        space.everywhere(space.sizes(dilations, "dilations")),
    )


def _ranked(function: Callable[..., Any], rank: int) -> Callable[..., Any]:
    what = "largest entries" if function is _max else "means"
    default = f"N{'DHW'[-rank:]}C"

    def operation(
        input: Any, ksize: Any, strides: Any, padding: Any, data_format: str = default, name: str | None = None
    ) -> jax.Array:
        return _pool(function, spatial(rank, data_format), input, ksize, strides, padding)

    operation.__name__ = operation.__qualname__ = f"{'max' if function is _max else 'avg'}_pool{rank}d"
    operation.__doc__ = (
        f"Return the {what} of windows over {rank} spatial axes.\n\n"
        f"    See https://www.tensorflow.org/api_docs/python/tf/nn/{operation.__name__}.\n    "
    )
    return operation


max_pool1d, max_pool2d, max_pool3d = (_ranked(_max, rank) for rank in (1, 2, 3))
avg_pool1d, avg_pool2d, avg_pool3d = (_ranked(_average, rank) for rank in (1, 2, 3))


def max_pool(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: str | None = None, name: str | None = None
) -> jax.Array:
    """Return the largest entries of windows over all axes but the batch and the channels."""
    tensor = convert_to_tensor(input)
    return _pool(_max, spatial(tensor.ndim - 2, data_format), tensor, ksize, strides, padding)


def avg_pool(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: str | None = None, name: str | None = None
) -> jax.Array:
    """Return the means of windows over all axes but the batch and the channels."""
    tensor = convert_to_tensor(input)
    return _pool(_average, spatial(tensor.ndim - 2, data_format), tensor, ksize, strides, padding)


def pool(
    input: Any,
    window_shape: Any,
    pooling_type: str,
    strides: Any = None,
    padding: Any = "VALID",
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> jax.Array:
    """Return the largest entries ("MAX") or means ("AVG") of windows."""
    kinds = {"MAX": _max, "AVG": _average}
    if pooling_type not in kinds:
        raise ValueError(f"`pooling_type` must be 'AVG' or 'MAX', got {pooling_type!r}.")
    tensor = convert_to_tensor(input)
    space = spatial(tensor.ndim - 2, data_format)
    return _pool(kinds[pooling_type], space, tensor, window_shape, strides, padding, dilations)
