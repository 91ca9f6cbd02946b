"""How ragged tensors are made of values and of what splits them into rows: `tf.RaggedTensor.from_row_splits` and its kin."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import static_int
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.ragged._base import Ragged
from tfdist_jax.compat.tensorflow.ragged._conversions import FromOthers
from tfdist_jax.compat.tensorflow.ragged._row_partition import RowPartition, integers, unfit


class Factories(FromOthers):
    """The constructors of ragged tensors."""

    @classmethod
    def from_row_splits(cls, values: Any, row_splits: Any, name: str | None = None, validate: bool = True) -> Any:
        """Return the ragged tensor whose row `i` is `values[row_splits[i]:row_splits[i + 1]]`.

        Raises:
            ValueError: If `row_splits` is empty, or no vector of integers.
            InvalidArgumentError: If `validate`, and they do not begin with 0, rise, and end with the number of values.
        """
        splits = integers(row_splits, "row_splits")
        if not len(splits):
            raise ValueError("row_splits tensor may not be empty.")
        if validate and splits[0] != 0:
            raise unfit("from_row_splits", "row_splits[0] == 0", splits[0])
        if validate and (np.diff(splits) < 0).any():
            raise unfit("from_row_splits", "row_splits that rise", splits.tolist())
        return cls._of_values(values, RowPartition(splits), "from_row_splits", validate=validate)

    @classmethod
    def from_row_lengths(cls, values: Any, row_lengths: Any, name: str | None = None, validate: bool = True) -> Any:
        """Return the ragged tensor whose rows have these lengths.

        Raises:
            InvalidArgumentError: If `validate`, and a length is negative or they do not add up to the number of values.
        """
        lengths = integers(row_lengths, "row_lengths")
        if validate and (lengths < 0).any():
            raise unfit("from_row_lengths", "row_lengths >= 0", lengths.tolist())
        partition = RowPartition.of_lengths(lengths, lengths.dtype)
        return cls._of_values(values, partition, "from_row_lengths", validate=validate)

    @classmethod
    def from_value_rowids(
        cls, values: Any, value_rowids: Any, nrows: Any = None, name: str | None = None, validate: bool = True
    ) -> Any:
        """Return the ragged tensor in which value `i` belongs to row `value_rowids[i]`; they rise.

        Raises:
            ValueError: If there are not as many as values, or `nrows` is too small.
            InvalidArgumentError: If `validate`, and they do not rise from 0 or more.
        """
        rowids = integers(value_rowids, "value_rowids")
        given = _as_values(values)
        if _count(given) != len(rowids):
            raise ValueError(
                f"Shapes ({_count(given)},) and ({len(rowids)},) are incompatible: values and value_rowids."
            )
        if validate and len(rowids) and (rowids[0] < 0 or (np.diff(rowids) < 0).any()):
            raise unfit("from_value_rowids", "value_rowids that rise from 0 or more", rowids.tolist())
        needed = int(rowids[-1]) + 1 if len(rowids) else 0
        rows = needed if nrows is None else static_int(nrows, "nrows")
        if rows < 0:
            raise ValueError(f"Expected nrows >= 0; got {rows}")
        if rows < needed:
            raise ValueError(f"Expected nrows >= value_rowids[-1] + 1; got nrows={rows}, value_rowids[-1]={needed - 1}")
        lengths = np.bincount(rowids, minlength=rows)
        return cls._of_values(given, RowPartition.of_lengths(lengths, rowids.dtype), "from_value_rowids")

    @classmethod
    def from_row_starts(cls, values: Any, row_starts: Any, name: str | None = None, validate: bool = True) -> Any:
        """Return the ragged tensor whose rows begin at these places; see `from_row_splits`."""
        given, starts = _as_values(values), integers(row_starts, "row_starts")
        splits = np.append(starts, np.asarray(_count(given), starts.dtype))
        return cls._from_splits(given, splits, "from_row_starts", validate=validate)

    @classmethod
    def from_row_limits(cls, values: Any, row_limits: Any, name: str | None = None, validate: bool = True) -> Any:
        """Return the ragged tensor whose rows end at these places; see `from_row_splits`."""
        limits = integers(row_limits, "row_limits")
        splits = np.concatenate([np.zeros(1, limits.dtype), limits])
        return cls._from_splits(values, splits, "from_row_limits", validate=validate)

    @classmethod
    def _from_splits(cls, values: Any, splits: np.ndarray, maker: str, *, validate: bool) -> Any:
        if validate and (splits[0] != 0 or (np.diff(splits) < 0).any()):
            raise unfit(maker, "splits that rise from 0", splits.tolist())
        return cls._of_values(values, RowPartition(splits), maker, validate=validate)

    @classmethod
    def from_uniform_row_length(
        cls, values: Any, uniform_row_length: Any, nrows: Any = None, validate: bool = True, name: str | None = None
    ) -> Any:
        """Return the ragged tensor whose rows have all the same length; `nrows` is needed if that is 0.

        Raises:
            ValueError: If the values do not make whole rows of it.
        """
        given = _as_values(values)
        kinds = [partition.dtype for partition in given.partitions] if isinstance(given, Ragged) else []
        length, count = int(integers(uniform_row_length, "uniform_row_length", rank=0)), _count(given)
        if length < 0:
            raise ValueError(f"uniform_row_length must be >= 0, got {length}.")
        whole = count // length if length else 0
        rows = whole if nrows is None else static_int(nrows, "nrows")
        if rows < 0:
            raise ValueError(f"nrows must be >= 0, got {rows}.")
        if validate and rows * length != count:
            raise ValueError(f"uniform_row_length={length} times nrows={rows} must equal nvals={count}")
        partition = RowPartition.uniform(rows, length, kinds[0] if kinds else np.int64)
        return cls._of_values(given, partition, "from_uniform_row_length", validate=validate)

    @classmethod
    def from_nested_row_splits(
        cls, flat_values: Any, nested_row_splits: Any, name: str | None = None, validate: bool = True
    ) -> Any:
        """Return the ragged tensor of splits for each level, the outermost first."""
        return _nested(cls.from_row_splits, flat_values, nested_row_splits, validate=validate)

    @classmethod
    def from_nested_row_lengths(
        cls, flat_values: Any, nested_row_lengths: Any, name: str | None = None, validate: bool = True
    ) -> Any:
        """Return the ragged tensor of rows' lengths for each level, the outermost first."""
        return _nested(cls.from_row_lengths, flat_values, nested_row_lengths, validate=validate)

    @classmethod
    def from_nested_value_rowids(
        cls,
        flat_values: Any,
        nested_value_rowids: Any,
        nested_nrows: Any = None,
        name: str | None = None,
        validate: bool = True,
    ) -> Any:
        """Return the ragged tensor of values' rows for each level, the outermost first.

        Raises:
            ValueError: If there are not as many `nested_nrows`.
        """
        levels = list(nested_value_rowids)
        counts = [None] * len(levels) if nested_nrows is None else list(nested_nrows)
        if len(counts) != len(levels):
            raise ValueError(
                "Argument `nested_nrows` must have the same length as argument `nested_value_rowids`. "
                f"len(nested_nrows) = {len(counts)} vs. len(nested_values_rowids) = {len(levels)}."
            )
        values = flat_values
        for rowids, count in reversed(list(zip(levels, counts, strict=True))):
            values = cls.from_value_rowids(values, rowids, count, validate=validate)
        return values

    @classmethod
    def _of_values(cls, values: Any, partition: RowPartition, maker: str, *, validate: bool = True) -> Any:
        given = _as_values(values)
        if validate and _count(given) != partition.nvals:
            raise unfit(maker, f"as many values as the rows hold, {partition.nvals}", _count(given))
        if isinstance(given, Ragged):
            return cls.of(given.flat_values, (partition.as_type(given.outer.dtype), *given.partitions))
        return cls.of(given, (partition,))


def _as_values(values: Any) -> Any:
    return values if isinstance(values, Ragged) else convert_to_tensor(values)


def _count(values: Any) -> int:
    if isinstance(values, Ragged):
        return values.outer.nrows
    if not np.ndim(values):
        raise unfit("RaggedTensor", "values with an axis to split", "a scalar")
    return np.shape(values)[0]


def _nested(make: Callable[..., Any], values: Any, levels: Any, *, validate: bool) -> Any:
    if not isinstance(levels, Sequence):
        raise TypeError(f"Nested partitions must be a list of tensors, one for each level, got {levels!r}.")
    for level in reversed(levels):
        values = make(values, level, validate=validate)
    return values
