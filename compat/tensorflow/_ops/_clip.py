"""Values and gradients kept within bounds."""

from typing import Any

import jax
import jax.numpy as jnp

from tfdist_jax.compat.tensorflow._ops import _subgradients
from tfdist_jax.compat.tensorflow._ops._arguments import axes, compute
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._indexed_slices import IndexedSlices, on_values
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor


def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None) -> jax.Array:
    """Return the tensor with smaller elements raised to a minimum and larger ones lowered to a maximum."""
    tensor = convert_to_tensor(t)
    dtype = as_dtype(tensor.dtype)
    low, high = convert_to_tensor(clip_value_min, dtype), convert_to_tensor(clip_value_max, dtype)
    return compute(lambda: _subgradients.maximum(_subgradients.minimum(tensor, high), low))


def clip_by_norm(t: Any, clip_norm: Any, axes: Any = None, name: str | None = None) -> Any:
    """Return the tensor scaled down so that its L2 norm, over the given or all axes, is at most `clip_norm`.

    Of `tf.IndexedSlices` the values are clipped, as they are.
    """
    return on_values(lambda tensor: _clip_by_norm(tensor, clip_norm, axes), t)


def _clip_by_norm(tensor: jax.Array, clip_norm: Any, axes: Any) -> jax.Array:
    limit = convert_to_tensor(clip_norm, as_dtype(tensor.dtype))
    squares = jnp.sum(jnp.square(tensor), _axes(axes), keepdims=True)
    # The square root of 0 has no gradient: compute it elsewhere.
    norm = jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1)), squares)
    return tensor * limit / _subgradients.maximum(norm, limit)


_axes = axes


def global_norm(t_list: Any, name: str | None = None) -> jax.Array:
    """Return the L2 norm of all tensors of a list together; entries that are None count nothing."""
    values = [t.values if isinstance(t, IndexedSlices) else convert_to_tensor(t) for t in t_list if t is not None]
    squares = [jnp.sum(jnp.square(value)) for value in values]
    return jnp.sqrt(sum(squares, jnp.zeros((), squares[0].dtype if squares else jnp.float32)))


def clip_by_global_norm(
    t_list: Any, clip_norm: Any, use_norm: Any = None, name: str | None = None
) -> tuple[list[Any], jax.Array]:
    """Return the tensors, all scaled down by one factor so that their global norm is at most `clip_norm`, and that norm.

    Args:
        t_list: Tensors; of `tf.IndexedSlices` the values count. Entries that are None stay None.
        clip_norm: The largest global norm.
        use_norm: The global norm, if it is known already.
        name: Unused.
    """
    norm = global_norm(t_list) if use_norm is None else convert_to_tensor(use_norm)
    limit = convert_to_tensor(clip_norm, as_dtype(norm.dtype))
    # Infinite norms give NaN, so that a broken step shows.
    scale = limit * _subgradients.minimum(1 / norm, 1 / limit) + jnp.where(jnp.isfinite(norm), 0, jnp.nan).astype(
        norm.dtype
    )
    scaled = lambda values: values * scale.astype(values.dtype)
    return [None if t is None else on_values(scaled, t) for t in t_list], norm
