"""`tf.io.RaggedFeature`: rows of different lengths in serialized examples."""

from typing import Any, NamedTuple

from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype, int32


class RowSplits(NamedTuple):
    """The feature `key` holds where rows are split."""

    key: str


class RowLengths(NamedTuple):
    """The feature `key` holds the rows' lengths."""

    key: str


class RowStarts(NamedTuple):
    """The feature `key` holds where rows begin."""

    key: str


class RowLimits(NamedTuple):
    """The feature `key` holds where rows end."""

    key: str


class ValueRowIds(NamedTuple):
    """The feature `key` holds the row of each value."""

    key: str


class UniformRowLength(NamedTuple):
    """All rows have the length `length`."""

    length: int


PARTITIONS = (RowSplits, RowLengths, RowStarts, RowLimits, ValueRowIds, UniformRowLength)


class _Fields(NamedTuple):
    dtype: Any
    value_key: str | None
    partitions: tuple[Any, ...]
    row_splits_dtype: Any
    validate: bool


class RaggedFeature(_Fields):
    """Drop-in for `tf.io.RaggedFeature`: any number of values, in rows of different lengths.

    Ref: https://www.tensorflow.org/api_docs/python/tf/io/RaggedFeature. Difference: rows that do not have as many values as an
    example are an error also without `validate`.

    Attributes:
        dtype: float32, int64 or string.
        value_key: The key of the values; the feature's own if None.
        partitions: How an example's values are split into rows, the outermost first, such as `RaggedFeature.RowLengths("key")`.
        row_splits_dtype: int32 or int64.
        validate: Unused.
    """

    RowSplits = RowSplits
    RowLengths = RowLengths
    RowStarts = RowStarts
    RowLimits = RowLimits
    ValueRowIds = ValueRowIds
    UniformRowLength = UniformRowLength

    def __new__(
        cls,
        dtype: Any,
        value_key: str | None = None,
        partitions: Any = (),
        row_splits_dtype: Any = int32,
        validate: bool = False,
    ) -> "RaggedFeature":
        """Describe a feature.

        Raises:
            TypeError: If something else than partitions is among `partitions`.
            ValueError: If `row_splits_dtype` is neither int32 nor int64.
        """
        for partition in partitions:
            if not isinstance(partition, PARTITIONS):
                kinds = ", ".join(f"RaggedFeature.{kind.__name__}" for kind in PARTITIONS)
                raise TypeError(f"Argument `partitions` takes {kinds}, got {partition!r}.")
        splits = as_dtype(row_splits_dtype)
        if splits.name not in ("int32", "int64"):
            raise ValueError(f"Argument `row_splits_dtype` must be int32 or int64, got {splits!r}.")
        return super().__new__(cls, as_dtype(dtype), value_key, tuple(partitions), splits, bool(validate))

    def keys(self, key: str) -> dict[str, Any]:
        """Return the keys that are read, with their types; `key` is the feature's own."""
        read = {partition.key: "int64" for partition in self.partitions if not isinstance(partition, UniformRowLength)}
        return {self.value_key or key: self.dtype, **read}
