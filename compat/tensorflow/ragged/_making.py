"""`tf.ragged`: ragged tensors of lists and of ranges of numbers, and splits of segments' numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid, static_int, value_of
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype, int64
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.ragged._ragged_tensor import RaggedTensor
from tfdist_jax.compat.tensorflow.ragged._row_partition import NOT_TRACED, RowPartition, integers, spans


def constant(
    pylist: Any,
    dtype: Any = None,
    ragged_rank: int | None = None,
    inner_shape: Any = None,
    name: str | None = None,
    row_splits_dtype: Any = int64,
) -> Any:
    """Return a ragged tensor of nested lists.

    See https://www.tensorflow.org/api_docs/python/tf/ragged/constant.

    Args:
        pylist: Nested lists, tuples or arrays; all values are equally deep in it.
        dtype: The type of the values.
        ragged_rank: How many times rows are split; by default so often that the flat values have the shape `inner_shape`.
        inner_shape: The shape of each flat value; `()` by default, or what the lists below `ragged_rank` are.
        name: Unused.
        row_splits_dtype: int32 or int64.

    Returns:
        A ragged tensor; a tensor if nothing is split.

    Raises:
        ValueError: If values are not equally deep, or do not fit `ragged_rank` and `inner_shape`.
    """
    splits_type = as_dtype(row_splits_dtype).as_numpy_dtype
    if not _is_list(pylist):
        if ragged_rank:
            raise ValueError(f"Invalid pylist={pylist!r}: incompatible with ragged_rank={ragged_rank}")
        if inner_shape:
            raise ValueError(f"Invalid pylist={pylist!r}: incompatible with dim(inner_shape)={len(inner_shape)}")
        return convert_to_tensor(pylist, dtype)
    scalar_depth, deepest = _depths(pylist)
    if scalar_depth is not None and deepest > scalar_depth:
        raise ValueError("Invalid pylist: empty list nesting is greater than scalar value nesting")
    depth = deepest if scalar_depth is None else scalar_depth
    sizes = None if inner_shape is None else tuple(int(size) for size in inner_shape)
    rank = _ragged_rank(depth, ragged_rank, sizes, has_values=scalar_depth is not None)
    levels: list[RowPartition] = []
    values: Any = pylist
    for _ in range(rank):
        levels.append(RowPartition.of_lengths(np.asarray([len(row) for row in values], np.int64), splits_type))
        values = [item for row in values for item in row]
    if sizes is None:
        sizes = _inner_sizes(values) if rank < depth - 1 else ()
    flat = convert_to_tensor(_plain(values), dtype)
    if scalar_depth is not None and tuple(np.shape(flat)[1:]) != sizes:
        raise ValueError(
            f"inner values have inconsistent shape: {tuple(np.shape(flat)[1:])} is not inner_shape={sizes}"
        )
    return RaggedTensor.of(flat.reshape(len(values) if rank else -1, *sizes), levels)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _depths(value: Any) -> tuple[int | None, int]:
    """Return how deep values are in nested lists, None if there are none, and how deep the lists are.

    Raises:
        ValueError: If values are not equally deep.
    """
    if not _is_list(value):
        return 0, 0
    if isinstance(value, np.ndarray) and value.dtype != object:
        return (value.ndim if value.size else None), value.ndim
    below = [_depths(item) for item in value]
    found = {scalar for scalar, _ in below if scalar is not None}
    if len(found) > 1:
        raise ValueError("all scalar values must have the same nesting depth")
    deepest = max((depth for _, depth in below), default=0)
    return (found.pop() + 1 if found else None), deepest + 1


def _ragged_rank(depth: int, given: int | None, sizes: tuple[int, ...] | None, *, has_values: bool) -> int:
    if given is None:
        return depth - 1 - (0 if sizes is None else len(sizes))
    if given < 0:
        raise ValueError(f"Invalid ragged_rank={given}: must be nonnegative")
    if has_values and given >= depth:
        raise ValueError(
            f"Invalid pylist: pylist has scalar values depth {depth}, but ragged_rank={given} requires scalar value depth "
            f"greater than {given}"
        )
    if sizes is not None and has_values and depth != given + 1 + len(sizes):
        raise ValueError(
            f"Invalid pylist: incompatible with ragged_rank={given} and dim(inner_shape)={len(sizes)}: values are {depth} deep"
        )
    return given


def _inner_sizes(values: Sequence[Any]) -> tuple[int, ...]:
    """Return the shape of each of the values, which must be the same."""
    sizes = []
    rows = list(values)
    while rows and _is_list(rows[0]):
        lengths = {len(row) if _is_list(row) else -1 for row in rows}
        if len(lengths) > 1:
            raise ValueError("inner values have inconsistent shape")
        sizes.append(lengths.pop())
        rows = [item for row in rows for item in row]
    return tuple(sizes)


def _plain(values: Any) -> Any:
    """Return nested lists of Python's and NumPy's numbers, without arrays."""
    if isinstance(values, np.ndarray):
        return values
    if isinstance(values, list | tuple):
        return [_plain(item) if _is_list(item) else item for item in values]
    return values


def make_range(
    starts: Any,
    limits: Any = None,
    deltas: Any = 1,
    dtype: Any = None,
    name: str | None = None,
    row_splits_dtype: Any = int64,
) -> Any:
    """Return a ragged tensor whose row `i` has the numbers from `starts[i]` to `limits[i]`, `deltas[i]` apart.

    See https://www.tensorflow.org/api_docs/python/tf/ragged/range. With one argument they are limits.

    Raises:
        InvalidArgumentError: If a delta is zero, or the vectors differ in length.
    """
    if limits is None:
        starts, limits = 0, starts
    given = [_known_vector(one, dtype) for one in (starts, limits, deltas)]
    wanted = (
        np.result_type(*(one.dtype for one in given if one.dtype.kind == "f"))
        if any(one.dtype.kind == "f" for one in given)
        else np.result_type(*(one.dtype for one in given))
    )
    first, last, step = (one.astype(wanted) for one in given)
    sizes = {len(one) for one in (first, last, step) if one.ndim}
    if len(sizes) > 1:
        raise invalid(f"starts, limits, and deltas must have the same shape, got lengths {sorted(sizes)}")
    count = sizes.pop() if sizes else 1
    first, last, step = (np.broadcast_to(one, (count,)) for one in (first, last, step))
    if (step == 0).any():
        raise invalid("Requires delta != 0")
    lengths = np.maximum(-((first - last) // step), 0).astype(np.int64)
    partition = RowPartition.of_lengths(lengths, as_dtype(row_splits_dtype).as_numpy_dtype)
    column = spans(np.zeros(count, np.int64), lengths).astype(wanted)
    values = np.repeat(first, lengths) + column * np.repeat(step, lengths)
    return RaggedTensor.of(convert_to_tensor(values.astype(wanted)), (partition,))


def _known_vector(value: Any, dtype: Any) -> np.ndarray:
    array = np.asarray(value_of(convert_to_tensor(value, dtype), NOT_TRACED))
    if array.ndim > 1:
        raise invalid(f"starts, limits, and deltas must be scalars or vectors, got shape {array.shape}")
    return array


def row_splits_to_segment_ids(splits: Any, name: str | None = None, out_type: Any = None) -> HostTensor:
    """Return the row of each value, `[nvals]`, of where rows are split, `[nrows + 1]`.

    Raises:
        ValueError: If `splits` is empty, or no vector of integers.
    """
    given = integers(splits, "splits")
    if not len(given):
        raise ValueError("Invalid row_splits: []")
    ids = RowPartition(given).rowids
    return HostTensor.of(ids if out_type is None else ids.astype(as_dtype(out_type).as_numpy_dtype))


def segment_ids_to_row_splits(
    segment_ids: Any, num_segments: Any = None, out_type: Any = None, name: str | None = None
) -> HostTensor:
    """Return where rows are split, `[num_segments + 1]`, of the row of each value, `[nvals]`, in order."""
    ids = integers(segment_ids, "segment_ids")
    needed = int(ids.max(initial=-1)) + 1
    count = needed if num_segments is None else static_int(num_segments, "num_segments")
    lengths = np.bincount(ids, minlength=count)[:count]
    kind = ids.dtype if out_type is None else as_dtype(out_type).as_numpy_dtype
    return HostTensor.of(RowPartition.of_lengths(lengths, kind).splits)
