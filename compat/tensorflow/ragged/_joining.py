"""Ragged tensors put together: `tf.concat`, `tf.stack`, and taken apart: `tf.split`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._ops import _concat
from tfdist_jax.compat.tensorflow._ops._arguments import invalid, static_int, static_ints
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.ragged._base import Ragged, ragged_axis, with_outer
from tfdist_jax.compat.tensorflow.ragged._batches import join_rows, parts_of
from tfdist_jax.compat.tensorflow.ragged._broadcasting import same_partitions
from tfdist_jax.compat.tensorflow.ragged._ragged_tensor import RaggedTensor
from tfdist_jax.compat.tensorflow.ragged._row_partition import RowPartition, splits_dtype
from tfdist_jax.compat.tensorflow.ragged._rows import merge_axes, slice_rows, take_rows, uniform_partitions


def concat(op: Any, values: Any, axis: Any, name: Any = None) -> Any:
    """Return ragged tensors, and tensors among them, joined along an axis that they have."""
    return _combine(_given(values), static_int(axis, "axis"), is_stacking=False)


def stack(values: Any, axis: Any = 0, name: str | None = None) -> Any:
    """Return tensors of one rank joined along a new axis; their rows may differ in length.

    See https://www.tensorflow.org/api_docs/python/tf/ragged/stack.

    Args:
        values: Tensors and ragged ones.
        axis: The new axis.
        name: Unused.

    Raises:
        ValueError: If there are none, or their ranks differ.
    """
    return _combine(_given(values), static_int(axis, "axis"), is_stacking=True)


def stack_ragged(op: Any, values: Any, axis: Any = 0, name: Any = None) -> Any:
    """Return what `tf.stack` is of ragged tensors."""
    return stack(values, axis)


def _given(values: Any) -> list[Any]:
    listed: list[Any] = [*values] if isinstance(values, list | tuple | Ragged) else [values]
    if not listed:
        raise ValueError("rt_inputs may not be empty.")
    hint = next((one.dtype for one in listed if hasattr(one, "dtype")), None)
    return [one if isinstance(one, Ragged) else convert_to_tensor(one, dtype_hint=hint) for one in listed]


def _rank(value: Any) -> int:
    return value.rank if isinstance(value, Ragged) else np.ndim(value)


def _combine(given: list[Any], axis: int, *, is_stacking: bool) -> Any:
    rank = _rank(given[0])
    for one in given[1:]:
        if _rank(one) != rank:
            raise ValueError(f"All tensors must have rank {rank}, got shape {tuple(one.shape)}.")
    where = ragged_axis(axis, rank + is_stacking) if rank or is_stacking else 0
    is_ragged = [isinstance(one, Ragged) for one in given]
    join = _concat.stack if is_stacking else _concat.concat
    if not any(is_ragged) and where == rank + is_stacking - 1:
        return join(given, where)
    if len(given) == 1 and not is_stacking:
        return given[0]
    # Rows of tensors may differ in length, too.
    depth = max([min(1, rank - 1), *(one.ragged_rank for one in given if isinstance(one, Ragged))])
    dtype = splits_dtype(one.outer for one in given if isinstance(one, Ragged))
    return _combine_ragged([_split_to(one, depth, dtype) for one in given], where, is_stacking=is_stacking, dtype=dtype)


def _split_to(given: Any, depth: int, dtype: Any) -> Any:
    flat, levels = (given.flat_values, given.partitions) if isinstance(given, Ragged) else (given, ())
    more = depth - len(levels)
    if more <= 0:
        return given
    sizes = np.shape(flat)
    return RaggedTensor.of(merge_axes(flat, more + 1), (*levels, *uniform_partitions(sizes[: more + 1], dtype)))


def _combine_ragged(given: list[Any], axis: int, *, is_stacking: bool, dtype: Any) -> Any:
    if axis == 0:
        rows = join_rows(RaggedTensor, given)
        if not is_stacking:
            return rows
        counts = np.asarray([_nrows(one) for one in given])
        return with_outer(RaggedTensor, RowPartition.of_lengths(counts, dtype), rows)
    if axis == 1:
        return _combine_entries(given, is_stacking=is_stacking, dtype=dtype)
    same_outer(given)
    inner = [one.values for one in given]
    if all(not isinstance(one, Ragged) for one in inner):
        values = (_concat.stack if is_stacking else _concat.concat)(inner, axis - 1)
    else:
        values = _combine_ragged(inner, axis - 1, is_stacking=is_stacking, dtype=dtype)
    return with_outer(RaggedTensor, RowPartition(given[0].outer.splits), values)


def same_outer(given: Sequence[Ragged]) -> None:
    """Raise if ragged tensors have other rows along the first axis."""
    same_partitions([one.of(None, one.partitions[:1]) for one in given])


def _nrows(given: Any) -> int:
    return given.outer.nrows if isinstance(given, Ragged) else np.shape(given)[0]


def _combine_entries(given: list[Any], *, is_stacking: bool, dtype: Any) -> Any:
    counts = [_nrows(one) for one in given]
    if len(set(counts)) > 1:
        raise invalid(f"Input tensors have incompatible shapes: they have {', '.join(map(str, counts))} rows.")
    number, nrows = len(given), counts[0]
    order = np.arange(number * nrows).reshape(number, nrows).T.reshape(-1)
    joined = join_rows(RaggedTensor, given)
    flat, partitions = take_rows(*parts_of(joined), order)
    rows = RowPartition(np.arange(nrows + 1, dtype=dtype) * number)
    if is_stacking:
        return RaggedTensor.of(flat, (rows, *partitions))
    inner = partitions[0]
    return RaggedTensor.of(flat, (RowPartition(inner.splits[rows.splits]), *partitions[1:]))


def split(
    op: Callable[..., Any], value: Any, num_or_size_splits: Any, axis: Any = 0, num: Any = None, name: Any = None
) -> list[Any]:
    """Return the rows of a ragged tensor in several parts: a number of equal ones, or of given sizes.

    Raises:
        InvalidArgumentError: If the sizes do not add up to the number of rows.
    """
    if ragged_axis(axis, value.rank) != 0:
        raise NotImplementedError("tf.split of a ragged tensor goes along its first axis. Take slices: `x[:, :2]`.")
    nrows = value.outer.nrows
    if np.ndim(num_or_size_splits) == 0:
        parts = static_int(num_or_size_splits, "num_or_size_splits")
        if parts < 1 or nrows % parts:
            raise invalid(f"{nrows} rows cannot be split into {parts} equal parts.")
        sizes = [nrows // parts] * parts
    else:
        sizes = list(static_ints(num_or_size_splits, "num_or_size_splits"))
    if sum(sizes) != nrows:
        raise invalid(f"The sizes {sizes} do not add up to {nrows} rows.")
    ends = np.cumsum(sizes).tolist()
    return [
        value.of(*slice_rows(value.flat_values, value.partitions, end - size, end))
        for size, end in zip(sizes, ends, strict=True)
    ]
