"""Updates of some rows or elements of a variable."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tfdist_jax.compat.tensorflow._tensors._checks import check_indices
from tfdist_jax.compat.tensorflow._tensors._indexed_slices import IndexedSlices
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor

_WAYS: dict[str, Callable[..., jax.Array]] = {
    "add": jax.lax.scatter_add,
    "sub": lambda tensor, at, updates, *rest, **options: jax.lax.scatter_add(tensor, at, -updates, *rest, **options),
    "mul": jax.lax.scatter_mul,
    "div": lambda tensor, at, updates, *rest, **options: jax.lax.scatter_mul(tensor, at, 1 / updates, *rest, **options),
    "min": jax.lax.scatter_min,
    "max": jax.lax.scatter_max,
    "update": jax.lax.scatter,
}


def scattered(how: str, tensor: jax.Array, indices: Any, updates: Any) -> jax.Array:
    """Return `tensor` with parts changed.

    Args:
        how: "add", "sub", "mul", "div", "min", "max" or "update".
        tensor: Any array; inside replicas one from outside of them too, which `tensor.at` would refuse.
        indices: `[..., depth]`, each a place in the first `depth` axes.
        updates: `[..., *tensor.shape[depth:]]`.

    Raises:
        InvalidArgumentError: If an index is out of range and known now.
    """
    depth = indices.shape[-1]
    check_indices(indices, tensor.shape[:depth])
    window = tensor.shape[depth:]
    numbers = jax.lax.ScatterDimensionNumbers(
        update_window_dims=tuple(range(1, 1 + len(window))),
        inserted_window_dims=tuple(range(depth)),
        scatter_dims_to_operand_dims=tuple(range(depth)),
    )
    at = indices.reshape(-1, depth)
    updates = jnp.broadcast_to(updates, (*indices.shape[:-1], *window)).reshape(-1, *window)
    return _WAYS[how](tensor, at, updates, numbers, mode=jax.lax.GatherScatterMode.FILL_OR_DROP)


def by_slices(how: str) -> Callable[..., Any]:
    """Make the method of variables that changes the rows that a `tf.IndexedSlices` names."""

    def method(self: Any, sparse_delta: Any, use_locking: bool = False, name: str | None = None) -> Any:
        if not isinstance(sparse_delta, IndexedSlices):
            raise TypeError(f"Argument `sparse_delta` must be a `tf.IndexedSlices`. Received arg: {sparse_delta}")
        self.scatter(how, sparse_delta.indices[..., None], sparse_delta.values)
        return self

    method.__doc__ = f"Change rows of the variable: {how}. Argument `sparse_delta` is a `tf.IndexedSlices`."
    return method


def by_indices(how: str) -> Callable[..., Any]:
    """Make the method of variables that changes the parts that rows of indices name."""

    def method(self: Any, indices: Any, updates: Any, name: str | None = None) -> Any:
        self.scatter(how, convert_to_tensor(indices), convert_to_tensor(updates, dtype=self.dtype))
        return self

    method.__doc__ = f"Change parts of the variable, given by rows of indices into its first axes: {how}."
    return method


def batch_rows(slices: Any) -> jax.Array:
    """Return the indices, `[*batch, n, depth]`, of `batch_scatter_update`: the last axis counts within its batch."""
    indices = slices.indices
    axes = jnp.meshgrid(*(jnp.arange(size, dtype=indices.dtype) for size in indices.shape), indexing="ij")
    return jnp.stack([*axes[:-1], indices], -1)
