"""Parts of ragged tensors by their numbers or by a mask: `tf.gather`, `tf.gather_nd`, `tf.where`, `tf.ragged.boolean_mask`."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid, static_int, value_of
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.ragged._base import Ragged, ragged_axis, with_outer
from tfdist_jax.compat.tensorflow.ragged._broadcasting import elementwise, same_partitions
from tfdist_jax.compat.tensorflow.ragged._joining import stack
from tfdist_jax.compat.tensorflow.ragged._ragged_tensor import RaggedTensor
from tfdist_jax.compat.tensorflow.ragged._row_partition import NOT_TRACED, RowPartition, integers
from tfdist_jax.compat.tensorflow.ragged._rows import of_any_length, places, take, take_rows, uniform_partitions


def gather(
    op: Callable[..., Any],
    params: Any,
    indices: Any,
    validate_indices: Any = None,
    axis: Any = None,
    batch_dims: int = 0,
    name: Any = None,
) -> Any:
    """Return entries along an axis of a ragged tensor, or of a tensor at ragged indices.

    Raises:
        InvalidArgumentError: If there is no such entry.
    """
    batches = static_int(batch_dims, "batch_dims")
    indices = indices if isinstance(indices, Ragged) else convert_to_tensor(indices)
    where = batches if axis is None else static_int(axis, "axis")
    rank = params.rank if isinstance(params, Ragged) else np.ndim(convert_to_tensor(params))
    where, batches = ragged_axis(where, rank), batches % max(_rank(indices), 1)
    if where < batches:
        raise ValueError(f"axis ({where}) must not be less than batch_dims ({batches}).")
    if batches:
        return _gather_in_batches(op, params, indices, where, batches)
    if isinstance(indices, Ragged):
        return indices.with_values(gather(op, params, indices.values, axis=where))
    if not isinstance(params, Ragged):
        return op(params, indices, axis=where)
    return _gather_dense_indices(op, params, indices, where)


def _gather_dense_indices(op: Callable[..., Any], params: Ragged, indices: Any, axis: int) -> Any:
    if axis > params.ragged_rank:
        flat = op(params.flat_values, indices, axis=axis - params.ragged_rank)
        return params.with_flat_values(flat)
    if axis > 1:
        return params.with_values(_gather_dense_indices(op, params.values, indices, axis - 1))
    wanted = _known(indices)
    if axis == 1:
        index = params.outer.starts[:, None] + _in_range(wanted.reshape(-1), params.outer.lengths[:, None])
        rows = _of_rows(params.values, index.reshape(-1))
        return _shaped(rows, (params.outer.nrows, *wanted.shape), params.outer.dtype)
    _in_range(wanted, params.outer.nrows)
    return _shaped(_of_rows(params, wanted.reshape(-1)), wanted.shape, params.outer.dtype)


def _known(indices: Any) -> np.ndarray:
    return np.asarray(value_of(convert_to_tensor(indices), NOT_TRACED))


def _in_range(index: np.ndarray, sizes: Any) -> np.ndarray:
    """Return numbers of entries that rows of some sizes have.

    Raises:
        InvalidArgumentError: If one has no such entry.
    """
    outside = (index < 0) | (index >= sizes)
    if outside.any():
        place = tuple(np.argwhere(outside)[0])
        number, count = (np.broadcast_to(one, outside.shape)[place] for one in (index, sizes))
        raise invalid(f"indices[{', '.join(map(str, place))}] = {number} is not in [0, {count})")
    return index


def _of_rows(given: Any, rows: np.ndarray) -> Any:
    """Return rows of a tensor or a ragged one."""
    if isinstance(given, Ragged):
        values, partitions = take_rows(given.flat_values, given.partitions, rows)
        return given.of(values, of_any_length(partitions))
    return take(given, rows)


def _shaped(rows: Any, sizes: tuple[int, ...], dtype: Any) -> Any:
    """Return rows as a tensor whose first axes have some sizes."""
    if not isinstance(rows, Ragged):
        return rows.reshape(*sizes, *np.shape(rows)[1:])
    if not sizes:
        return rows[0]
    outer = [RowPartition(one.splits) for one in uniform_partitions(sizes, dtype)]
    return rows.of(rows.flat_values, (*outer, *rows.partitions))


def _rank(value: Any) -> int:
    return value.rank if isinstance(value, Ragged) else np.ndim(value)


def _gather_in_batches(op: Callable[..., Any], params: Any, indices: Any, axis: int, batches: int) -> Any:
    """Gather within each row, with the row's own indices."""
    params, indices = (_as_rows(given) for given in (params, indices))
    if params.outer.nrows != indices.outer.nrows:
        raise invalid(
            f"params and indices must have the same rows, got {params.outer.nrows} and {indices.outer.nrows}."
        )
    if batches > 1:
        same_partitions([params.of(None, params.partitions[:1]), indices.of(None, indices.partitions[:1])])
        inner = gather(op, params.values, indices.values, axis=axis - 1, batch_dims=batches - 1)
        return with_outer(indices, indices.outer, inner)
    if axis != 1:
        raise NotImplementedError(
            "tf.gather of ragged tensors with batch_dims takes `axis` == batch_dims. Gather rows one by one."
        )
    merged = indices.merge_dims(1, -1) if indices.rank > 2 else indices
    numbers = _known(merged.flat_values)
    rowids = merged.outer.rowids
    _in_range(numbers, params.outer.lengths[rowids])
    found = _of_rows(params.values, params.outer.starts[rowids] + numbers)
    for partition in reversed(indices.partitions):
        found = with_outer(params, partition, found)
    return found


def _as_rows(given: Any) -> Ragged:
    return given if isinstance(given, Ragged) else RaggedTensor.from_tensor(given, ragged_rank=_rank(given) - 1)


def gather_nd(
    op: Callable[..., Any],
    params: Any,
    indices: Any,
    batch_dims: int = 0,
    name: Any = None,
    bad_indices_policy: str = "",
) -> Any:
    """Return parts of a ragged tensor, each given by a row of indices into its first axes.

    Raises:
        InvalidArgumentError: If there is no such part.
    """
    if batch_dims:
        raise NotImplementedError(
            "tf.gather_nd of ragged tensors takes no batch_dims. Use `tf.gather` with batch_dims."
        )
    if isinstance(indices, Ragged):
        return indices.with_flat_values(gather_nd(op, params, indices.flat_values))
    if not isinstance(params, Ragged):
        return op(params, indices)
    wanted = _known(indices)
    depth, rows = wanted.shape[-1], wanted.reshape(-1, wanted.shape[-1])
    if depth > params.rank:
        raise invalid(f"index innermost dimension length must be <= params rank; saw: {depth} vs. {params.rank}")
    index = _in_range(rows[:, 0], params.outer.nrows)
    levels = min(depth - 1, params.ragged_rank)
    for number, partition in enumerate(params.partitions[:levels], 1):
        index = partition.starts[index] + _in_range(rows[:, number], partition.lengths[index])
    left = params.of(params.flat_values, params.partitions[levels:])
    if depth - 1 <= levels:
        return _shaped(_of_rows(left, index), wanted.shape[:-1], params.outer.dtype)
    found = op(left, np.concatenate([index[:, None], rows[:, levels + 1 :]], 1))
    return found.reshape(*wanted.shape[:-1], *np.shape(found)[1:])


def where(op: Callable[..., Any], condition: Any, x: Any = None, y: Any = None, name: Any = None) -> Any:
    """Return values of `x` where the condition is true and of `y` elsewhere; without them, the places of true values."""
    if x is not None and y is not None:
        return (
            elementwise(op, [condition, x, y])
            if isinstance(condition, Ragged) or np.ndim(condition)
            else _chosen(condition, x, y)
        )
    flat = condition.flat_values
    true = _known(op(flat))
    at = np.concatenate([places(condition.partitions)[true[:, 0]], true[:, 1:]], 1)
    return convert_to_tensor(at.astype(np.int64))


def _chosen(condition: Any, x: Any, y: Any) -> Any:
    return x if bool(value_of(convert_to_tensor(condition), NOT_TRACED)) else y


def boolean_mask(data: Any, mask: Any, name: str | None = None) -> Any:
    """Return the entries at which a mask is true: rows stay rows, and have those of theirs.

    See https://www.tensorflow.org/api_docs/python/tf/ragged/boolean_mask.

    Args:
        data: A tensor or a ragged one.
        mask: Of type bool, with the first axes of `data`.
        name: Unused.

    Raises:
        ValueError: If `data` has not these axes.
        InvalidArgumentError: If its rows are others than the mask's.
    """
    given = data if isinstance(data, Ragged) else convert_to_tensor(data)
    chosen = mask if isinstance(mask, Ragged) else convert_to_tensor(mask, _dtypes.bool_)
    if _rank(chosen) == 0:
        raise ValueError("mask cannot be scalar.")
    if _rank(chosen) > _rank(given):
        raise ValueError(f"Shapes {tuple(given.shape)} and {tuple(chosen.shape)} are incompatible: data and mask.")
    return _masked(given, chosen)


def boolean_mask_of(op: Any, tensor: Any, mask: Any, axis: Any = None, name: Any = None) -> Any:
    """Return what `tf.boolean_mask` is of a ragged tensor, which TensorFlow does not have: `tf.ragged.boolean_mask`."""
    if axis not in (None, 0):
        raise NotImplementedError("tf.boolean_mask of a ragged tensor takes no axis. Use `tf.ragged.boolean_mask`.")
    return boolean_mask(tensor, mask)


def _masked(given: Any, chosen: Any) -> Any:
    if _rank(chosen) == 1:
        flags = _known(chosen)
        count = given.outer.nrows if isinstance(given, Ragged) else np.shape(given)[0]
        if len(flags) != count:
            raise ValueError(f"Shapes ({count},) and ({len(flags)},) are incompatible: data and mask.")
        return _of_rows(given, np.flatnonzero(flags))
    rows, flags = _split_once(given), _split_once(chosen)
    same_partitions([rows.of(None, rows.partitions[:1]), flags.of(None, flags.partitions[:1])])
    kept = _masked(rows.values, flags.values)
    if _rank(chosen) > 2:
        return with_outer(rows, RowPartition(rows.outer.splits), kept)
    flat = np.concatenate([[0], np.cumsum(_known(flags.values))])
    return with_outer(rows, RowPartition(flat[rows.outer.splits].astype(rows.outer.dtype)), kept)


def _split_once(given: Any) -> Ragged:
    return given if isinstance(given, Ragged) else RaggedTensor.from_tensor(given)


def dynamic_partition(op: Any, data: Any, partitions: Any, num_partitions: Any, name: Any = None) -> list[Any]:
    """Return the rows of each partition."""
    numbers = integers(partitions, "partitions")
    return [_of_rows(data, np.flatnonzero(numbers == i)) for i in range(static_int(num_partitions, "num_partitions"))]


def stack_dynamic_partitions(data: Any, partitions: Any, num_partitions: Any, name: str | None = None) -> Any:
    """Return a ragged tensor whose row `i` has the entries of `data` whose partition is `i`.

    See https://www.tensorflow.org/api_docs/python/tf/ragged/stack_dynamic_partitions.

    Raises:
        ValueError: If `data` has not the axes of `partitions`.
        InvalidArgumentError: If a number is outside of `[0, num_partitions)`.
    """
    given = data if isinstance(data, Ragged) else convert_to_tensor(data)
    numbers: Any = partitions if isinstance(partitions, Ragged) else convert_to_tensor(partitions)
    count = static_int(num_partitions, "num_partitions")
    if _rank(numbers) == 0:
        return stack_dynamic_partitions(stack([given]), numbers.reshape(1), count)
    if isinstance(numbers, Ragged) or _rank(numbers) > 1:
        rows, ids = _split_once(given), _split_once(numbers)
        same_partitions([rows.of(None, rows.partitions[:1]), ids.of(None, ids.partitions[:1])])
        return stack_dynamic_partitions(rows.values, ids.values, count)
    known = integers(numbers, "partitions")
    _in_range(known, count)
    order = np.argsort(known, kind="stable")
    partition = RowPartition.of_lengths(np.bincount(known, minlength=count))
    like = given if isinstance(given, Ragged) else RaggedTensor
    return with_outer(like, partition, _of_rows(given, order))
