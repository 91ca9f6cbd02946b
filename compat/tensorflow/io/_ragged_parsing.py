"""Columns of serialized examples as ragged tensors."""

import dataclasses
from collections.abc import Callable
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.io import _ragged_features
from tfdist_jax.compat.tensorflow.io._example_columns import Column
from tfdist_jax.compat.tensorflow.io._ragged_features import RaggedFeature
from tfdist_jax.compat.tensorflow.ragged._ragged_tensor import RaggedTensor
from tfdist_jax.compat.tensorflow.ragged._row_partition import RowPartition


@final
@dataclasses.dataclass(frozen=True)
class RaggedRows:
    """A ragged tensor's parts: the values, and the partitions, of which the first is that into examples."""

    values: np.ndarray
    partitions: list[RowPartition]

    def as_tensor(self, *, is_one: bool) -> Any:
        """Return the ragged tensor, or that of the only example: a tensor if it is split no more."""
        values = convert_to_tensor(self.values)
        return RaggedTensor.of(values, self.partitions[1:] if is_one else self.partitions)

    def in_lists(self, counts: np.ndarray) -> "RaggedRows":
        """Return the rows of each step as those of examples that have `counts` steps each."""
        outer = RowPartition.of_lengths(counts, self.partitions[0].dtype)
        return RaggedRows(self.values, [outer, *self.partitions])


def read_ragged(key: str, feature: RaggedFeature, column_of: Callable[[str, Any], Column]) -> RaggedRows:
    """Return a feature's values in rows; `column_of` gives a column whose values are of a type.

    Raises:
        InvalidArgumentError: If an example has not as many values as its rows.
    """
    dtype = feature.row_splits_dtype.as_numpy_dtype
    column = column_of(feature.value_key or key, feature.dtype)
    values, counts, found = column.values, column.lengths, []
    for partition in reversed(feature.partitions):
        if isinstance(partition, _ragged_features.UniformRowLength):
            length = int(partition.length)
            _check_counts(key, counts // length * length, counts)
            counts = counts // length
            if found:
                found.append(RowPartition.uniform(int(counts.sum()), length, dtype))
            else:  # Rows of one length need no partition.
                values = values.reshape(int(counts.sum()), length, *values.shape[1:])
            continue
        lengths, rows = _lengths(partition, column_of(partition.key, "int64"), counts)
        if (lengths < 0).any():
            raise invalid(f"Key: {key}. The rows of {partition} have negative lengths: {lengths.tolist()}")
        _check_counts(key, _sums(lengths, rows), counts)
        found.append(RowPartition.of_lengths(lengths, dtype))
        counts = rows
    return RaggedRows(values, [RowPartition.of_lengths(counts, dtype), *reversed(found)])


def _check_counts(key: str, wanted: np.ndarray, counts: np.ndarray) -> None:
    wrong = np.flatnonzero(wanted != counts)
    if len(wrong):
        row = wrong[0]
        raise invalid(f"Key: {key}, Index: {row}.  Its rows hold {wanted[row]} values, but there are {counts[row]}.")


def _sums(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the sum of each group of so many."""
    so_far = np.concatenate([[0], np.cumsum(values)])
    ends = np.cumsum(counts)
    return so_far[ends] - so_far[ends - counts]


def _lengths(partition: Any, column: Column, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lengths of all examples' rows, and how many rows each example has."""
    numbers, given = column.values, column.lengths
    match partition:
        case _ragged_features.RowLengths():
            return numbers, given
        case _ragged_features.RowSplits():
            is_last = _last_of_each(given)
            return (np.append(numbers[1:], 0) - numbers)[~is_last], np.maximum(given - 1, 0)
        case _ragged_features.RowStarts():
            ends = np.append(numbers[1:], 0)
            ends[_last_of_each(given)] = counts[given > 0]
            return ends - numbers, given
        case _ragged_features.RowLimits():
            begins = np.insert(numbers[:-1], 0, 0) if len(numbers) else numbers
            begins[(np.cumsum(given) - given)[given > 0]] = 0
            return numbers - begins, given
    rows = np.zeros_like(given)
    rows[given > 0] = numbers[_last_of_each(given)] + 1
    examples = np.repeat(np.cumsum(rows) - rows, given)
    return np.bincount(examples + numbers, minlength=int(rows.sum())), rows


def _last_of_each(counts: np.ndarray) -> np.ndarray:
    """Tell which entries are the last of groups of so many."""
    is_last = np.zeros(int(counts.sum()), bool)
    is_last[np.cumsum(counts)[counts > 0] - 1] = True
    return is_last
