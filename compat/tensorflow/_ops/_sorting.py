"""Sorting and the largest elements."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import compute, invalid, require, same_type, static_int
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._checks import on_cpu
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor


class TopKV2(NamedTuple):
    """The largest elements and where they are."""

    values: jax.Array
    indices: jax.Array


def sort(values: Any, axis: Any = -1, direction: str = "ASCENDING", name: str | None = None) -> jax.Array:
    """Return the elements sorted along an axis; `direction` is "ASCENDING" or "DESCENDING"."""
    order = compute(jnp.sort, convert_to_tensor(values), static_int(axis, "axis"))
    return jnp.flip(order, static_int(axis, "axis")) if _descends(direction) else order


def argsort(
    values: Any, axis: Any = -1, direction: str = "ASCENDING", stable: bool = False, name: str | None = None
) -> jax.Array:
    """Return the int32 indices that sort a tensor along an axis; equal elements keep their order."""
    descending = _descends(direction)
    return compute(
        jnp.argsort, convert_to_tensor(values), static_int(axis, "axis"), stable=True, descending=descending
    ).astype(jnp.int32)


def _descends(direction: str) -> bool:
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ValueError(f"Argument `direction` should be one of 'ASCENDING' or 'DESCENDING', got {direction!r}.")
    return direction == "DESCENDING"


def top_k(
    input: Any, k: Any = 1, sorted: bool = True, index_type: Any = _dtypes.int32, name: str | None = None
) -> TopKV2:
    """Return the `k` largest elements along the last axis, sorted, and their indices."""
    tensor, count = convert_to_tensor(input), static_int(k, "k")
    if not tensor.ndim or not 0 <= count <= tensor.shape[-1]:
        raise invalid(f"input must have at least k columns, got shape {tuple(tensor.shape)} and k={count}.")
    values, indices = jax.lax.top_k(tensor, count)
    return TopKV2(values, indices.astype(as_dtype(index_type).dtype))


def in_top_k(targets: Any, predictions: Any, k: Any, name: str | None = None) -> jax.Array:
    """Tell for each row of predictions whether the target class is among the `k` largest; ties count as inside."""
    targets, predictions = convert_to_tensor(targets), convert_to_tensor(predictions)
    classes = predictions.shape[-1]
    own = jnp.take_along_axis(predictions, jnp.clip(targets, 0, classes - 1)[:, None], 1)
    larger = jnp.sum(predictions > own, 1)
    inside = (targets >= 0) & (targets < classes) & jnp.isfinite(own[:, 0])
    return inside & (larger < static_int(k, "k"))


def searchsorted(
    sorted_sequence: Any, values: Any, side: str = "left", out_type: Any = _dtypes.int32, name: str | None = None
) -> jax.Array:
    """Return where each value would be inserted to keep the last axis of `sorted_sequence` sorted."""
    if side not in ("left", "right"):
        raise ValueError(f"Argument `side` must be either 'right' or 'left', got {side!r}.")
    sequence, values = same_type(sorted_sequence, values)

    def search(row: Any, wanted: Any) -> Any:
        return jnp.searchsorted(row, wanted, side=side)

    for _ in range(sequence.ndim - 1):
        search = jax.vmap(search)
    return compute(search, sequence, values).astype(as_dtype(out_type).dtype)


def invert_permutation(x: Any, name: str | None = None) -> jax.Array:
    """Return the permutation that undoes one."""
    order = require(convert_to_tensor(x), "i", "math.invert_permutation")
    known = on_cpu(order)
    if known is not None and not np.array_equal(np.sort(known), np.arange(known.size)):
        raise invalid(f"{known.tolist()} is no permutation of the numbers below {known.size}.")
    return jnp.zeros_like(order).at[order].set(jnp.arange(order.shape[0], dtype=order.dtype))


def approx_max_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
    name: str | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Return about the `k` largest entries along an axis and where they are; exact but on TPU.

    See https://www.tensorflow.org/api_docs/python/tf/math/approx_max_k.
    """
    return compute(
        jax.lax.approx_max_k,
        require(convert_to_tensor(operand), "f", "math.approx_max_k"),
        k,
        reduction_dimension,
        recall_target,
        reduction_input_size_override,
        aggregate_to_topk,
    )


def approx_min_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
    name: str | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Return about the `k` smallest entries along an axis and where they are; exact but on TPU.

    See https://www.tensorflow.org/api_docs/python/tf/math/approx_min_k.
    """
    return compute(
        jax.lax.approx_min_k,
        require(convert_to_tensor(operand), "f", "math.approx_min_k"),
        k,
        reduction_dimension,
        recall_target,
        reduction_input_size_override,
        aggregate_to_topk,
    )
