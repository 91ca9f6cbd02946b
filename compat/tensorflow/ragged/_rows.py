"""Rows of ragged tensors, which are taken by their numbers."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from tfdist_jax._autodiff._tape import is_recording
from tfdist_jax._internals import EvalTrace, current_trace
from tfdist_jax.compat.tensorflow._tensors._checks import on_cpu
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.ragged._row_partition import RowPartition, spans

Partitions = tuple[RowPartition, ...]


def known_values(values: Any) -> np.ndarray | None:
    """Return values that NumPy may work on: they are in the host's memory, and nothing differentiates or traces."""
    if isinstance(values, HostTensor):
        return np.asarray(values)
    if is_recording() or not isinstance(current_trace(), EvalTrace) or getattr(values, "committed", False):
        return None
    return on_cpu(values)


def take(values: Any, index: np.ndarray) -> Any:
    """Return entries along the first axis of a tensor."""
    known = known_values(values)
    if known is not None:
        return convert_to_tensor(known[index])
    small = index.astype(np.int32) if values.shape[0] <= np.iinfo(np.int32).max else index
    return jnp.take(values, small, axis=0)


def take_rows(values: Any, partitions: Partitions, rows: np.ndarray) -> tuple[Any, Partitions]:
    """Return the values and partitions of some rows of a ragged tensor."""
    found: list[RowPartition] = []
    index = rows
    for partition in partitions:
        lengths = partition.lengths[index]
        found.append(_of_lengths(lengths, partition, len(index)))
        index = spans(partition.starts[index], lengths)
    return take(values, index), tuple(found)


def slice_rows(values: Any, partitions: Partitions, start: int, stop: int) -> tuple[Any, Partitions]:
    """Return the values and partitions of rows that lie next to each other."""
    found: list[RowPartition] = []
    for partition in partitions:
        splits = partition.splits[start : stop + 1]
        found.append(RowPartition(splits - splits[0], partition.uniform_length))
        start, stop = int(splits[0]), int(splits[-1])
    known = known_values(values)
    return values[start:stop] if known is None else convert_to_tensor(known[start:stop]), tuple(found)


def _of_lengths(lengths: np.ndarray, like: RowPartition, nrows: int) -> RowPartition:
    if like.uniform_length is not None:
        return RowPartition.uniform(nrows, like.uniform_length, like.dtype)
    return RowPartition.of_lengths(lengths, like.dtype)


def uniform_partitions(sizes: Sequence[int], dtype: Any = np.int64) -> Partitions:
    """Return the partitions of all but the first axis of a tensor."""
    found, rows = [], int(sizes[0])
    for size in sizes[1:]:
        found.append(RowPartition.uniform(rows, int(size), dtype))
        rows *= int(size)
    return tuple(found)


def places(partitions: Partitions) -> np.ndarray:
    """Return the index of each flat value along the first axis and the partitioned ones, `[nvals, len(partitions) + 1]`."""
    inner = partitions[-1]
    columns, rows = [inner.columns], inner.rowids
    for partition in reversed(partitions[:-1]):
        columns.append(partition.columns[rows])
        rows = partition.rowids[rows]
    return np.stack([rows, *reversed(columns)], 1)


def merge_axes(tensor: Any, count: int) -> Any:
    """Return a tensor whose first `count` axes are one."""
    sizes = np.shape(tensor)
    return tensor.reshape(int(np.prod(sizes[:count])), *sizes[count:])


def of_any_length(partitions: Sequence[RowPartition]) -> Partitions:
    """Return the same partitions, of rows whose lengths may differ: TensorFlow's shapes are None there."""
    return tuple(RowPartition(partition.splits) for partition in partitions)
