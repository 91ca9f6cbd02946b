"""`tf.data.experimental.CsvDataset` and `make_csv_dataset`: tables in text files."""

import csv
import io
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._dtypes import DType, as_dtype
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.data._csv_plans import ReadCsv
from tfdist_jax.compat.tensorflow.data._dataset import Dataset
from tfdist_jax.compat.tensorflow.data._file_datasets import FileDataset
from tfdist_jax.compat.tensorflow.data._options import AUTOTUNE
from tfdist_jax.compat.tensorflow.io import gfile
from tfdist_jax.compat.tensorflow.io._compression import compression_of, open_to_read
from tfdist_jax.compat.tensorflow.io._csv import CsvTable

# The types that columns may have, from the one that fewest values have; values of a later one are no reason for an earlier one.
_INFERRED = (_dtypes.int32, _dtypes.int64, _dtypes.float32, _dtypes.float64, _dtypes.string)


class CsvDataset(FileDataset):
    """Drop-in for `tf.data.experimental.CsvDataset`: the rows of CSV files, tuples.

    Ref: https://www.tensorflow.org/api_docs/python/tf/data/experimental/CsvDataset
    """

    def __init__(
        self,
        filenames: Any,
        record_defaults: Sequence[Any],
        compression_type: Any = None,
        buffer_size: Any = None,
        header: bool = False,
        field_delim: str = ",",
        use_quote_delim: bool = True,
        na_value: str = "",
        select_cols: Sequence[int] | None = None,
        exclude_cols: Sequence[int] | None = None,
    ) -> None:
        """Read files.

        Args:
            filenames: Paths, or a dataset of them.
            record_defaults: For each column that is wanted its default value, or its type where a value must be there.
            compression_type: "", "ZLIB" or "GZIP".
            buffer_size: How many bytes are read at once.
            header: Whether the first line of each file is left out.
            field_delim: The character between values.
            use_quote_delim: Whether values may stand between `"`.
            na_value: What else counts as empty.
            select_cols: Which columns are wanted, rising.
            exclude_cols: Which columns are not wanted, rising; one of the two at most.

        Raises:
            tf.errors.InvalidArgumentError: If arguments do not fit; in an iteration, at a line that is no row.
        """
        if select_cols is not None and exclude_cols is not None:
            raise invalid("Give `select_cols` or `exclude_cols`, not both.")
        if select_cols is not None and any(a >= b for a, b in itertools.pairwise(select_cols)):
            raise invalid("select_cols should be strictly increasing indices")
        chosen = select_cols
        if exclude_cols is not None:
            columns = range(len(record_defaults) + len(exclude_cols))
            chosen = [column for column in columns if column not in set(exclude_cols)]
        defaults = [_default(value) for value in record_defaults]
        table = CsvTable(defaults, field_delim, na_value, chosen, use_quote_delim=use_quote_delim)
        self._read(ReadCsv, filenames, table, bool(header), compression_type=compression_type, buffer_size=buffer_size)


def _default(value: Any) -> Any:
    if isinstance(value, DType | type | np.dtype):
        kind = as_dtype(value)
        return convert_to_tensor(np.empty(0, object if kind.name == "string" else kind.as_numpy_dtype), kind)
    return value


def make_csv_dataset(
    file_pattern: Any,
    batch_size: int,
    column_names: Sequence[str] | None = None,
    column_defaults: Sequence[Any] | None = None,
    label_name: str | None = None,
    select_columns: Sequence[Any] | None = None,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    header: bool = True,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10000,
    shuffle_seed: int | None = None,
    prefetch_buffer_size: int | None = None,
    num_parallel_reads: int | None = None,
    sloppy: bool = False,
    num_rows_for_inference: int | None = 100,
    compression_type: Any = None,
    ignore_errors: bool = False,
    encoding: str = "utf-8",
) -> Dataset:
    """Make the dataset of batches of CSV files: dictionaries of columns, or pairs of one and the labels.

    Args:
        file_pattern: Patterns of the files' names.
        batch_size: Rows of a batch.
        column_names: The columns' names; those in the first line if None.
        column_defaults: Default values or types, as for `CsvDataset`; if None, types are those of the first values, and defaults 0 and "".
        label_name: The column of the labels.
        select_columns: Names or numbers of the columns that are wanted.
        field_delim: The character between values.
        use_quote_delim: Whether values may stand between `"`.
        na_value: What else counts as empty.
        header: Whether the first line of each file has names.
        num_epochs: How often the files are gone over; for ever if None.
        shuffle: Whether files and rows are shuffled.
        shuffle_buffer_size: Rows in the buffer for that.
        shuffle_seed: Its seed.
        prefetch_buffer_size: Batches that are prepared ahead.
        num_parallel_reads: Files that are read in turn.
        sloppy: Unused: the order is always the same.
        num_rows_for_inference: How many rows types are found of; all if None.
        compression_type: "", "ZLIB" or "GZIP".
        ignore_errors: Whether lines that are no rows are left out.
        encoding: Of the text, where names and types are found.

    Raises:
        ValueError: If there is no such file, or arguments do not fit.
    """
    names = sorted(gfile.glob(file_pattern))
    if not names:
        raise ValueError(f"No files match `file_pattern` {file_pattern}.")
    reader = _Reader(names, field_delim, use_quote_delim, compression_of(compression_type), encoding)
    if column_names is None:
        if not header:
            raise ValueError("Expected `column_names` or `header` arguments. Neither is provided.")
        column_names = reader.names()
    _check_unique(column_names)
    chosen = None if select_columns is None else _numbers(select_columns, column_names)
    if column_defaults is None:
        wanted = range(len(column_names)) if chosen is None else chosen
        column_defaults = reader.defaults(len(column_names), wanted, na_value, num_rows_for_inference, header=header)
    if chosen is not None:
        if len(column_defaults) != len(chosen):
            raise ValueError(
                "If specified, `column_defaults` and `select_columns` must have the same length: `column_defaults` has length "
                f"{len(column_defaults)}, `select_columns` has length {len(chosen)}."
            )
        column_names = [column_names[i] for i in chosen]
    if label_name is not None and label_name not in column_names:
        raise ValueError(
            f"`label_name` provided must be one of the columns: {list(column_names)}. Received: {label_name}."
        )

    def read(filename: Any) -> Dataset:
        dataset = CsvDataset(
            filename,
            column_defaults,
            compression_type=compression_type,
            header=header,
            field_delim=field_delim,
            use_quote_delim=use_quote_delim,
            na_value=na_value,
            select_cols=chosen,
        )
        return dataset.ignore_errors() if ignore_errors else dataset

    def name_columns(*columns: Any) -> Any:
        features = dict(zip(column_names, columns, strict=True))
        return features if label_name is None else (features, features.pop(label_name))

    files = Dataset.from_tensor_slices(names)
    files = files.shuffle(len(names), shuffle_seed) if shuffle else files
    rows = files.interleave(read, cycle_length=num_parallel_reads or 1, block_length=1)
    rows = shuffled_and_repeated(rows, num_epochs, shuffle, shuffle_buffer_size, shuffle_seed)
    batches = rows.batch(batch_size, drop_remainder=num_epochs is None).map(name_columns)
    return batches.prefetch(AUTOTUNE if prefetch_buffer_size is None else prefetch_buffer_size)


def shuffled_and_repeated(
    dataset: Dataset, num_epochs: int | None, shuffle: bool, buffer_size: int, seed: int | None
) -> Dataset:
    """Return a dataset shuffled, if it is to be, and gone over so many times."""
    dataset = dataset.shuffle(buffer_size, seed) if shuffle else dataset
    return dataset if num_epochs == 1 else dataset.repeat(num_epochs)


def _check_unique(names: Sequence[str]) -> None:
    twice = {name for name in names if list(names).count(name) > 1}
    if twice:
        raise ValueError(f"Either `column_names` argument or CSV header row contains duplicate column names: {twice}.")


def _numbers(chosen: Sequence[Any], names: Sequence[str]) -> list[int]:
    """Return the numbers of columns, rising."""
    found = []
    for column in chosen:
        if isinstance(column, int):
            if not 0 <= column < len(names):
                raise ValueError(
                    f"Column index {column} specified in `select_columns` should be at least 0 and below {len(names)}, the "
                    "number of columns."
                )
            found.append(column)
        elif column not in names:
            raise ValueError(
                f"Column {column} specified in `select_columns` must be of one of the columns: {list(names)}."
            )
        else:
            found.append(list(names).index(column))
    if len(set(found)) < len(found):
        raise ValueError(f"The `select_columns` argument contains duplicate columns: {list(chosen)}.")
    return sorted(found)


class _Reader:
    """Reads the beginnings of files, to find names and types of columns."""

    def __init__(self, names: Sequence[str], delimiter: str, quotes: bool, compression: str, encoding: str) -> None:
        self._names, self._compression, self._encoding = names, compression, encoding
        quoting: Any = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
        self._options: dict[str, Any] = {"delimiter": delimiter, "quoting": quoting}

    def _rows(self, name: str) -> Iterator[list[str]]:
        with open_to_read(name, self._compression) as file, io.TextIOWrapper(file, self._encoding, newline="") as text:
            yield from csv.reader(text, **self._options)

    def names(self) -> list[str]:
        """Return the names in the first line, which all files have."""
        first: list[str] = []
        for name in self._names:
            row = next(self._rows(name), None)
            if row is None:
                raise ValueError(f"Failed when reading the header line of {name}. Is it an empty file?")
            first = first or row
            if row != first:
                raise ValueError(
                    "All input CSV files should have the same column names in the header row. File "
                    f"{name} has different column names."
                )
        return first

    def defaults(
        self, count: int, chosen: Sequence[int], na_value: str, most: int | None, *, header: bool
    ) -> list[Any]:
        """Return 0 or "" for each column, of the type that its values in the first rows have."""
        kinds: list[DType | None] = [None] * len(chosen)
        for seen, row in enumerate(self._data_rows(count, header=header)):
            if seen == most:
                break
            kinds = [_widened(row[column], na_value, kind) for column, kind in zip(chosen, kinds, strict=True)]
        found = [kind or _dtypes.string for kind in kinds]
        return [convert_to_tensor([""] if kind is _dtypes.string else [0], kind) for kind in found]

    def _data_rows(self, count: int, *, header: bool) -> Iterator[list[str]]:
        for name in self._names:
            for number, row in enumerate(self._rows(name), 1):
                if header and number == 1:
                    continue
                if len(row) != count:
                    raise ValueError(
                        f"Problem inferring types: CSV row {number} of {name} has {len(row)} number of fields. Expected: {count}."
                    )
                yield row


def _widened(text: str, na_value: str, before: DType | None) -> DType | None:
    """Return the first type that a value and those before it have."""
    if text in ("", na_value):
        return before
    known = 0 if before is None else _INFERRED.index(before)
    return next(kind for kind in _INFERRED[known:] if _is_of(text, kind))


def _is_of(text: str, kind: DType) -> bool:
    if kind is _dtypes.string:
        return True
    try:
        if kind.is_integer:
            return kind.min <= int(text) <= kind.max
        with np.errstate(over="ignore"):
            return bool(kind.as_numpy_dtype(text) < np.inf)
    except (ValueError, OverflowError):
        return False
