"""Sums, means and their kin over axes of ragged tensors, also those whose sizes differ from row to row."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._ops import _binary, _cast, _creation, _elementwise, _reductions, _segments
from tfdist_jax.compat.tensorflow._ops._arguments import invalid, static_ints
from tfdist_jax.compat.tensorflow._ops._shapes import reshape
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.ragged._base import Ragged, ragged_axis, with_outer
from tfdist_jax.compat.tensorflow.ragged._broadcasting import elementwise, map_flat_values
from tfdist_jax.compat.tensorflow.ragged._row_partition import RowPartition, integers
from tfdist_jax.compat.tensorflow.ragged._rows import known_values, of_any_length, take
from tfdist_jax.compat.tensorflow.ragged._shapes import expand_dims

Segments = Callable[[Any, Any, int], Any]


def reduce_axes(reduce: Callable[..., Any], segments: Segments, given: Any, axis: Any, *, keepdims: bool) -> Any:
    """Return a reduction of a ragged tensor.

    Args:
        reduce: The same of tensors: takes one, an `axis`, and `keepdims`.
        segments: The same of groups of entries: takes a tensor, the groups' numbers and how many groups there are.
        given: The ragged tensor.
        axis: One axis or several; all if None.
        keepdims: Whether axes stay, with a size of 1.

    Raises:
        ValueError: If there is no such axis.
    """
    if axis is None:
        result = reduce(given.flat_values)
        return reshape(result, [1] * given.rank) if keepdims else result
    wanted = sorted({ragged_axis(one, given.rank) for one in static_ints(axis, "axis")}, reverse=True)
    for one in wanted:
        given = _reduce_axis(reduce, segments, given, one, keepdims=keepdims)
    return given


def _reduce_axis(reduce: Callable[..., Any], segments: Segments, given: Any, axis: int, *, keepdims: bool) -> Any:
    if not isinstance(given, Ragged):
        return reduce(given, axis, keepdims)
    if axis > 1:
        inner = _reduce_axis(reduce, segments, given.values, axis - 1, keepdims=keepdims)
        return given.with_values(inner)
    outer = given.outer
    if axis == 1:
        result = of_segments(segments, given.values, outer.rowids, outer.nrows)
    else:
        result = of_segments(segments, given.values, outer.columns, int(outer.lengths.max(initial=0)))
    return expand_dims(result, axis) if keepdims else result


def of_segments(segments: Segments, data: Any, ids: np.ndarray, number: int) -> Any:
    """Return a reduction of groups of rows: entry by entry, each group's as long as its longest row."""
    if not isinstance(data, Ragged):
        return segments(data, ids, number)
    outer = data.outer
    lengths = np.zeros(number, outer.dtype)
    np.maximum.at(lengths, ids, outer.lengths)
    partition = RowPartition.of_lengths(lengths, outer.dtype)
    entries = partition.starts[ids][outer.rowids] + outer.columns
    return with_outer(data, partition, of_segments(segments, data.values, entries, partition.nvals))


def _of_bools(segments: Segments) -> Segments:
    return lambda data, ids, number: segments(_cast.cast(data, _dtypes.int32), ids, number) > 0


_SEGMENTS: dict[str, Segments] = {
    "reduce_sum": _segments.unsorted_segment_sum,
    "reduce_prod": _segments.unsorted_segment_prod,
    "reduce_max": _segments.unsorted_segment_max,
    "reduce_min": _segments.unsorted_segment_min,
    "reduce_any": _of_bools(_segments.unsorted_segment_max),
    "reduce_all": _of_bools(_segments.unsorted_segment_min),
}


def reduce(
    op: Callable[..., Any], input_tensor: Any, axis: Any = None, keepdims: bool = False, name: Any = None
) -> Any:
    """Return what `tf.reduce_sum`, max, min, prod, any or all is of a ragged tensor."""
    if input_tensor.dtype.name == "string":
        raise invalid(f"tf.{op.__name__} takes numbers, got texts.")
    return reduce_axes(op, _SEGMENTS[op.__name__], input_tensor, axis, keepdims=bool(keepdims))


def _sum(given: Any, axis: Any, keepdims: bool) -> Any:
    if not isinstance(given, Ragged):
        return _reductions.reduce_sum(given, axis, keepdims)
    return reduce_axes(_reductions.reduce_sum, _SEGMENTS["reduce_sum"], given, axis, keepdims=keepdims)


def reduce_mean(op: Any, input_tensor: Any, axis: Any = None, keepdims: bool = False, name: Any = None) -> Any:
    """Return means of a ragged tensor: sums divided by how many values there are, of integers as float64."""
    total = _sum(input_tensor, axis, bool(keepdims))
    count = _sum(map_flat_values(_creation.ones_like, input_tensor), axis, bool(keepdims))
    if not isinstance(total, Ragged):
        return _binary.truediv(total, count)
    return total.of(_binary.truediv(total.flat_values, count.flat_values), of_any_length(total.partitions))


def reduce_variance(op: Any, input_tensor: Any, axis: Any = None, keepdims: bool = False, name: Any = None) -> Any:
    """Return variances of a ragged tensor: the mean of the squares without the square of the mean."""
    given = map_flat_values(convert_to_tensor, input_tensor)
    mean = reduce_mean(op, given, axis, keepdims)
    of_squares = reduce_mean(op, map_flat_values(_elementwise.square, given), axis, keepdims)
    difference = lambda squares, one: _binary.maximum(squares - one * one, 0)
    return _of_each(difference, of_squares, mean)


def reduce_std(op: Any, input_tensor: Any, axis: Any = None, keepdims: bool = False, name: Any = None) -> Any:
    """Return standard deviations of a ragged tensor."""
    return map_flat_values(_elementwise.sqrt, reduce_variance(op, input_tensor, axis, keepdims))


def reduce_logsumexp(op: Any, input_tensor: Any, axis: Any = None, keepdims: bool = False, name: Any = None) -> Any:
    """Return logarithms of sums of exponentials of a ragged tensor."""
    if axis is None:
        return reduce_axes(op, _SEGMENTS["reduce_sum"], input_tensor, None, keepdims=bool(keepdims))
    raw = reduce_axes(_reductions.reduce_max, _SEGMENTS["reduce_max"], input_tensor, axis, keepdims=True)
    largest = map_flat_values(lambda x: jnp.where(jnp.isfinite(x), x, 0), raw)
    powers = map_flat_values(_elementwise.exp, elementwise(_binary.subtract, [input_tensor, largest]))
    total = map_flat_values(_elementwise.log, _sum(powers, axis, bool(keepdims)))
    shift = largest if keepdims else _sum(largest, axis, keepdims=False)
    return _of_each(_binary.add, total, shift)


def _of_each(op: Callable[..., Any], one: Any, other: Any) -> Any:
    return elementwise(op, [one, other]) if isinstance(one, Ragged) else op(one, other)


def softmax(op: Any, logits: Any, axis: Any = None, name: Any = None) -> Any:
    """Return softmaxes over an axis of a ragged tensor, the last one by default."""
    where = ragged_axis(-1 if axis is None else axis, logits.rank)
    if where > logits.ragged_rank:
        return map_flat_values(lambda flat: op(flat, axis=where - logits.ragged_rank), logits)
    largest = reduce_axes(_reductions.reduce_max, _SEGMENTS["reduce_max"], logits, where, keepdims=True)
    powers = map_flat_values(_elementwise.exp, elementwise(_binary.subtract, [logits, largest]))
    total = _sum(powers, where, keepdims=True)
    return elementwise(_binary.truediv, [powers, total])


def segment_op(op: Callable[..., Any], data: Any, segment_ids: Any, num_segments: Any, name: Any = None) -> Any:
    """Return what `tf.math.unsorted_segment_sum` or its kin is of rows."""
    (number,) = static_ints(num_segments, "num_segments")
    ids = segment_ids
    if isinstance(ids, Ragged):
        return segment_op(op, data.values, ids.values, num_segments)
    if not isinstance(data, Ragged):
        return op(data, ids, number)
    numbers = integers(ids, "segment_ids")
    if len(numbers) != data.outer.nrows:
        raise invalid(f"data has {data.outer.nrows} rows and segment_ids {len(numbers)}")
    kept = np.flatnonzero(numbers >= 0)
    if len(kept) < len(numbers):
        raise invalid(f"segment_ids of ragged rows must be 0 or more, got {numbers.tolist()}")
    return of_segments(op, data, numbers, number)


def cumsum(
    op: Callable[..., Any], x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: Any = None
) -> Any:
    """Return sums along an axis of a ragged tensor so far."""
    where = ragged_axis(axis, x.rank)
    if where > x.ragged_rank:
        return map_flat_values(lambda flat: op(flat, where - x.ragged_rank, exclusive, reverse), x)
    if where < x.ragged_rank:
        raise NotImplementedError(
            f"tf.cumsum of a ragged tensor goes along its innermost ragged axis, {x.ragged_rank}, got {where}. Use `to_tensor()`."
        )
    if not x.partitions[-1].nvals:
        return x
    # All rows side by side, without what comes before each.
    partition = x.partitions[-1]
    sums = op(x.flat_values, 0, True, reverse)
    ends = partition.splits[1:] - 1 if reverse else partition.starts
    before = take(sums, np.repeat(np.minimum(ends, partition.nvals - 1), partition.lengths))
    within = sums - before
    return x.with_flat_values(within if exclusive else within + x.flat_values)


def bincount(op: Callable[..., Any], arr: Any, weights: Any = None, *args: Any, axis: Any = None, **kwargs: Any) -> Any:
    """Return how often each number occurs in a ragged tensor, or in each of its rows."""
    flat = weights.flat_values if isinstance(weights, Ragged) else weights
    if axis is None or axis == 0:
        return op(arr.flat_values, flat, *args, **kwargs)
    if weights is not None or args or arr.rank != 2:
        raise NotImplementedError(
            "tf.math.bincount of rows takes a ragged matrix, without `weights`, and options by name."
        )
    longest = known_values(arr.flat_values)
    size = 0 if longest is None else int(longest.max(initial=-1)) + 1
    size = max(size, int(kwargs.pop("minlength", 0) or 0))
    most = kwargs.pop("maxlength", None)
    size = size if most is None else min(size, int(most))
    return op(arr.to_tensor(size), axis=axis, minlength=size, maxlength=size, **kwargs)
