"""Axes of ragged tensors: added, taken away, repeated, turned around."""

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from tfdist_jax.compat.tensorflow._ops import _shapes
from tfdist_jax.compat.tensorflow._ops._arguments import invalid, static_ints
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow.ragged._base import Ragged, ragged_axis, with_outer
from tfdist_jax.compat.tensorflow.ragged._row_partition import RowPartition, spans
from tfdist_jax.compat.tensorflow.ragged._rows import take_rows


def expand_dims(given: Any, axis: Any) -> Any:
    """Return a tensor with a new axis of size 1.

    Raises:
        ValueError: If there is no such axis.
    """
    if not isinstance(given, Ragged):
        return _shapes.expand_dims(given, axis)
    where = ragged_axis(axis, given.rank + 1)
    if where > 1:
        return given.with_values(expand_dims(given.values, where - 1))
    nrows = given.outer.nrows
    dtype = given.outer.dtype
    return with_outer(
        given, RowPartition.uniform(1, nrows, dtype) if where == 0 else RowPartition.uniform(nrows, 1, dtype), given
    )


def squeeze(op: Any, input: Any, axis: Any = None, name: Any = None) -> Any:
    """Return a ragged tensor without axes of size 1.

    Raises:
        ValueError: If no axes are given.
        InvalidArgumentError: If one has another size.
    """
    if axis is None:
        raise ValueError("Ragged.squeeze must have an axis argument.")
    rank = input.rank
    for where in sorted({ragged_axis(one, rank) for one in static_ints(axis, "axis")}, reverse=True):
        input = _without_axis(input, where)
    return input


def _without_axis(given: Any, axis: int) -> Any:
    if not isinstance(given, Ragged):
        return _shapes.squeeze(given, axis)
    if axis > 1:
        return given.with_values(_without_axis(given.values, axis - 1))
    is_one = given.outer.nrows == 1 if axis == 0 else (given.outer.lengths == 1).all()
    if not is_one:
        raise invalid(f"the given axis (axis = {axis}) is not squeezable!")
    return given.values


def tile(op: Any, input: Any, multiples: Any, name: Any = None) -> Any:
    """Return a ragged tensor repeated `multiples[i]` times along axis i.

    Raises:
        InvalidArgumentError: If there is not one number for each axis.
    """
    counts = static_ints(multiples, "multiples")
    if len(counts) != input.rank:
        raise invalid(f"Expected multiples argument to be a vector of length {input.rank} but got length {len(counts)}")
    rows = np.tile(np.arange(input.outer.nrows), counts[0])
    found = []
    for partition, count in zip(input.partitions, counts[1:], strict=False):
        starts, lengths = partition.starts[rows], partition.lengths[rows]
        found.append(RowPartition.of_lengths(lengths * count, partition.dtype))
        rows = spans(np.repeat(starts, count), np.repeat(lengths, count))
    flat, _ = take_rows(input.flat_values, (), rows)
    inner = counts[1 + input.ragged_rank :]
    return input.of(_shapes.tile(flat, [1, *inner]) if inner else flat, found)


def reverse(op: Any, tensor: Any, axis: Any, name: Any = None) -> Any:
    """Return a ragged tensor with its entries in opposite order along some axes."""
    wanted = {ragged_axis(one, tensor.rank) for one in static_ints(axis, "axis")}
    rows = np.arange(tensor.outer.nrows)
    rows = rows[::-1] if 0 in wanted else rows
    found = []
    for level, partition in enumerate(tensor.partitions, 1):
        starts, lengths = partition.starts[rows], partition.lengths[rows]
        found.append(RowPartition(RowPartition.of_lengths(lengths, partition.dtype).splits, partition.uniform_length))
        rows = spans(starts, lengths)
        if level in wanted:
            turned = found[-1]
            rows = rows[turned.splits[1:][turned.rowids] - 1 - turned.columns]
    flat, _ = take_rows(tensor.flat_values, (), rows)
    inner = [one - tensor.ragged_rank for one in wanted if one > tensor.ragged_rank]
    return tensor.of(_shapes.reverse(flat, inner) if inner else flat, found)


def _count(number: int, out_type: Any) -> HostTensor:
    return HostTensor.of(np.asarray(number, np.int32 if out_type is None else as_dtype(out_type).as_numpy_dtype))


def size(op: Any, input: Any, out_type: Any = None, name: Any = None) -> HostTensor:
    """Return how many values a ragged tensor has."""
    return _count(int(np.prod(np.shape(input.flat_values), dtype=np.int64)), out_type)


def rank(op: Any, input: Any, name: Any = None) -> HostTensor:
    """Return how many axes a ragged tensor has."""
    return _count(input.rank, None)


def shape(op: Callable[..., Any], *args: Any, **kwargs: Any) -> NoReturn:
    """Refuse: TensorFlow has a `DynamicRaggedShape`."""
    raise NotImplementedError(
        "`tf.shape` of a ragged tensor is a `tf.experimental.DynamicRaggedShape`, which is not there. Use `x.shape`, "
        "`x.bounding_shape()`, `x.nrows()` or `x.row_lengths()`."
    )
