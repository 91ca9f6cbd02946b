"""`tf.sparse`: what changes the number of elements, and so needs to know their places."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._ops import _subgradients
from tfdist_jax.compat.tensorflow._ops._arguments import invalid, same_type, static_int, static_ints
from tfdist_jax.compat.tensorflow._ops._reductions import bincount as dense_bincount
from tfdist_jax.compat.tensorflow._tensors._indexed_slices import IndexedSlices
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensor, is_sparse, sparse
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.sparse._arithmetic import at_places, known_places, to_dense


def from_dense(tensor: Any, name: str | None = None) -> SparseTensor:
    """Return the elements of a tensor that are not zero (or empty strings).

    See https://www.tensorflow.org/api_docs/python/tf/sparse/from_dense. It works outside of functions only.
    """
    whole = convert_to_tensor(tensor)
    value = known_places(whole, "tf.sparse.from_dense")
    return at_places(whole, value != (b"" if value.dtype == object else 0), "tf.sparse.from_dense")


def retain(sp_input: Any, to_retain: Any) -> SparseTensor:
    """Return the elements for which `to_retain`, `[n]` bool, is true."""
    given, chosen = sparse(sp_input), known_places(convert_to_tensor(to_retain), "tf.sparse.retain")
    if chosen.shape != np.shape(given.values):
        raise ValueError(f"Shapes {chosen.shape} and {np.shape(given.values)} are incompatible")
    return _only(given, np.flatnonzero(chosen))


def _only(given: SparseTensor, which: np.ndarray) -> SparseTensor:
    return SparseTensor(given.indices[which], given.values[which], given.shape)


def slice(sp_input: Any, start: Any, size: Any, name: str | None = None) -> SparseTensor:
    """Return the part of a sparse tensor that begins at `start` and has sizes `size`, cut off at its end."""
    given, first = sparse(sp_input), np.asarray(static_ints(start, "start"))
    sizes = np.minimum(np.asarray(static_ints(size, "size")), np.maximum(np.asarray(given.shape) - first, 0))
    places = known_places(given.indices, "tf.sparse.slice")
    which = np.flatnonzero(((places >= first) & (places < first + sizes)).all(-1))
    return SparseTensor(given.indices[which] - first, given.values[which], sizes)


def split(sp_input: Any = None, num_split: Any = None, axis: Any = None, name: str | None = None) -> list[SparseTensor]:
    """Return a sparse tensor in parts along an axis; the first parts are longer by one where it does not divide."""
    given = sparse(sp_input)
    number, along = static_int(num_split, "num_split"), static_int(axis, "axis")
    size = given.shape[along]
    if not 1 <= number <= size:
        raise invalid(f"num_split must be in [1, {size}], got {number}.")
    lengths = [size // number + (i < size % number) for i in range(number)]
    parts, first = [], 0
    for length in lengths:
        start, sizes = np.zeros(len(given.shape), int), list(given.shape)
        start[along], sizes[along] = first, length
        parts.append(slice(given, start, sizes))
        first += length
    return parts


def reset_shape(sp_input: Any, new_shape: Any = None) -> SparseTensor:
    """Return the elements in a larger shape, or without `new_shape` in the smallest that holds them.

    Raises:
        ValueError: If the new shape has another number of axes or is smaller.
    """
    given = sparse(sp_input)
    if new_shape is None:
        places = known_places(given.indices, "tf.sparse.reset_shape")
        return SparseTensor(given.indices, given.values, places.max(0, initial=-1) + 1)
    sizes = static_ints(new_shape, "new_shape")
    if len(sizes) != len(given.shape):
        raise ValueError(f"Shape {sizes} must have rank {len(given.shape)}")
    if any(new < old for new, old in zip(sizes, given.shape, strict=True)):
        raise ValueError(f"Requested dimensions {sizes} are smaller than the existing {tuple(given.shape)}")
    return SparseTensor(given.indices, given.values, sizes)


def fill_empty_rows(sp_input: Any, default_value: Any, name: str | None = None) -> tuple[SparseTensor, jax.Array]:
    """Return the sparse matrix with `default_value` at the start of rows that have no element, and which those are."""
    given = sparse(sp_input)
    places = known_places(given.indices, "tf.sparse.fill_empty_rows")
    empty = np.setdiff1d(np.arange(given.shape[0]), places[:, 0])
    filler = convert_to_tensor(default_value, dtype_hint=given.dtype)
    new = np.stack([empty, np.zeros_like(empty)], 1)
    order = np.argsort(np.concatenate([places[:, 0], empty]), kind="stable")
    values = jnp.concatenate([given.values, jnp.broadcast_to(filler, len(empty))])[order]
    filled = SparseTensor(np.concatenate([places, new])[order], values, given.shape)
    return filled, convert_to_tensor(np.isin(np.arange(given.shape[0]), empty))


def add(a: Any, b: Any, threshold: Any = 0) -> Any:
    """Return the sum of two tensors of which one or both are sparse; of two sparse ones, a sparse one.

    See https://www.tensorflow.org/api_docs/python/tf/sparse/add.

    Args:
        a: A tensor or sparse tensor.
        b: Another one; at least one is sparse.
        threshold: Sums of two elements that are smaller than this, without their sign, are left out.
    """
    if not is_sparse(a) and not is_sparse(b):
        raise TypeError("At least one input should be SparseTensor; do you mean to use tf.add()?")
    if not is_sparse(a) or not is_sparse(b):
        given, dense = (a, b) if is_sparse(a) else (b, a)
        values, whole = same_type(given.values, dense)
        if tuple(whole.shape) != tuple(given.shape):
            raise invalid(f"Shapes {tuple(given.shape)} and {tuple(whole.shape)} differ.")
        return whole.at[tuple(given.indices.T)].add(values)
    total, number = _together(a, b, "tf.sparse.add", jnp.add)
    large = np.abs(known_places(total.values, "tf.sparse.add")) >= np.asarray(threshold)
    return _only(total, np.flatnonzero(large | (number == 1)))


def maximum(sp_a: Any, sp_b: Any, name: str | None = None) -> SparseTensor:
    """Return the larger elements of two sparse tensors, at the places of either; zero where one has none."""
    return _together(sp_a, sp_b, "tf.sparse.maximum", _subgradients.maximum)[0]


def minimum(sp_a: Any, sp_b: Any, name: str | None = None) -> SparseTensor:
    """Return the smaller elements of two sparse tensors, at the places of either; zero where one has none."""
    return _together(sp_a, sp_b, "tf.sparse.minimum", _subgradients.minimum)[0]


def _together(a: Any, b: Any, what: str, function: Any) -> tuple[SparseTensor, np.ndarray]:
    """Return `function` of two sparse tensors at the places of either, and how many have an element there."""
    one, other = sparse(a), sparse(b)
    values, others = same_type(one.values, other.values)
    if one.shape != other.shape:
        raise invalid(f"Operands' shapes do not match: got {tuple(one.shape)} and {tuple(other.shape)}")
    both = np.concatenate([known_places(part.indices, what) for part in (one, other)])
    places, at, number = np.unique(both, axis=0, return_inverse=True, return_counts=True)
    mine, theirs = np.split(at.reshape(-1), [len(values)])
    nothing = jnp.zeros(len(places), values.dtype)
    return SparseTensor(
        places, function(nothing.at[mine].add(values), nothing.at[theirs].add(others)), one.shape
    ), number


def mask(a: Any, mask_indices: Any, name: str | None = None) -> IndexedSlices:
    """Return `tf.IndexedSlices` without the rows whose numbers are in `mask_indices`."""
    if not isinstance(a, IndexedSlices):
        raise AttributeError(f"tf.sparse.mask takes tf.IndexedSlices, got {type(a).__name__}; see tf.sparse.retain.")
    left = np.flatnonzero(
        ~np.isin(
            known_places(a.indices, "tf.sparse.mask"), known_places(convert_to_tensor(mask_indices), "tf.sparse.mask")
        )
    )
    return IndexedSlices(a.values[left], a.indices[left], a.dense_shape)


def bincount(
    values: Any,
    weights: Any = None,
    axis: Any = 0,
    minlength: Any = None,
    maxlength: Any = None,
    binary_output: bool = False,
    name: str | None = None,
) -> SparseTensor:
    """Return how often each integer occurs, without those that do not; over all axes or, for `axis=-1`, in each row.

    See https://www.tensorflow.org/api_docs/python/tf/sparse/bincount.
    """
    if is_sparse(values):
        numbers, weights = _padded(values, weights, axis)
    else:
        numbers = convert_to_tensor(values)
    kept = np.asarray(known_places(numbers, "tf.sparse.bincount"))
    longest = kept.max(initial=-1) + 1
    sizes = max(int(longest), static_int(minlength or 0, "minlength"))
    if maxlength is not None:
        sizes = min(sizes, static_int(maxlength, "maxlength"))
    counts = dense_bincount(
        numbers, weights, sizes, sizes, numbers.dtype, axis=axis if axis == -1 else None, binary_output=binary_output
    )
    seen = dense_bincount(numbers, None, sizes, sizes, axis=axis if axis == -1 else None)
    return at_places(counts, seen > 0, "tf.sparse.bincount")


def _padded(values: Any, weights: Any, axis: Any) -> tuple[Any, Any]:
    """Return the integers of a sparse tensor, in rows filled up with -1 if they are counted in rows, and their weights."""
    given = sparse(values)
    if axis != -1:
        return given.values, None if weights is None else sparse(weights).values
    return to_dense(given, -1), None if weights is None else to_dense(weights)
