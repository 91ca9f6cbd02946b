"""Rows of a tensor that is cut into parts along its first axis."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax._internals import known_value
from tfdist_jax.compat.tensorflow._ops._arguments import require
from tfdist_jax.compat.tensorflow._ops._selection import gather
from tfdist_jax.compat.tensorflow._tensors._checks import check_indices
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor


def part_sizes(rows: int, parts: int) -> list[int]:
    """Return how many rows each part has: as alike as can be, the first ones having one more."""
    return [rows // parts + (i < rows % parts) for i in range(parts)]


def gather_parts(parts: Sequence[Any], indices: Any) -> jax.Array:
    """Return rows of a tensor that is cut into parts, `[*indices.shape, *row]`.

    The gradient by a part is `tf.IndexedSlices`: of its own rows where the indices are known; else of as many rows as there are indices,
    where what belongs to another part is zeros, with the number behind the part's last row.

    Args:
        parts: Tensors or variables, alike but for their first axis.
        indices: Integers, of any shape, that count the rows of all parts.

    Raises:
        InvalidArgumentError: If an index is out of range and known.
    """
    tensors = [convert_to_tensor(part) for part in parts]
    indices = require(convert_to_tensor(indices), "i", "gather")
    sizes = [tensor.shape[0] for tensor in tensors]
    check_indices(indices, sum(sizes))
    flat = indices.reshape(-1)
    known = known_value(flat)
    rows = _gather_all(tensors, flat, sizes) if known is None else _gather_own(tensors, np.asarray(known), sizes)
    return rows.reshape(*indices.shape, *tensors[0].shape[1:])


def _gather_own(tensors: Sequence[jax.Array], indices: np.ndarray, sizes: Sequence[int]) -> jax.Array:
    own = own_indices(indices, sizes)
    rows = jnp.concatenate(
        [gather(tensor, convert_to_tensor(local)) for tensor, (_, local) in zip(tensors, own, strict=True)]
    )
    return rows[np.argsort(np.concatenate([places for places, _ in own]))]


def _gather_all(tensors: Sequence[jax.Array], indices: jax.Array, sizes: Sequence[int]) -> jax.Array:
    rows = jnp.zeros((indices.size, *tensors[0].shape[1:]), tensors[0].dtype)
    for tensor, local, size in zip(tensors, local_indices(indices, sizes), sizes, strict=True):
        is_own = (local < size).reshape(-1, *[1] * (rows.ndim - 1))
        rows = jnp.where(is_own, gather(tensor, local), rows)
    return rows


def own_indices(indices: np.ndarray, sizes: Sequence[int]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return for each part which of the indices are its own, and what these are in the part."""
    ends = np.cumsum(sizes)
    numbers = np.searchsorted(ends, indices, side="right")
    places = [np.flatnonzero(numbers == i) for i in range(len(sizes))]
    return [
        (own, (indices[own] - (end - size)).astype(indices.dtype))
        for own, end, size in zip(places, ends, sizes, strict=True)
    ]


def local_indices(indices: jax.Array, sizes: Sequence[int]) -> list[jax.Array]:
    """Return for each part what the indices are in it: the part's size where they are not its own."""
    if indices.dtype != np.int64:
        indices = indices.astype(np.int32)  # Smaller types may not hold a part's size.
    starts = np.cumsum([0, *sizes[:-1]])
    return [
        jnp.where((indices >= start) & (indices < start + size), indices - start, size).astype(indices.dtype)
        for start, size in zip(starts.tolist(), sizes, strict=True)
    ]


def part_numbers(indices: jax.Array, sizes: Sequence[int]) -> jax.Array:
    """Return to which part each index belongs."""
    return jnp.searchsorted(jnp.asarray(np.cumsum(sizes), indices.dtype), indices, side="right")
