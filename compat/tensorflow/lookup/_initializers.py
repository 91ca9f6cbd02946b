"""What tables are filled from: tensors, or the lines of a file."""

import abc
from typing import Any, Protocol

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._platform._errors import NotFoundError
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._dtypes import DType, as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow._tensors._text_numbers import UnreadableNumberError, read_numbers
from tfdist_jax.compat.tensorflow.io._gfile import GFile


class TableInitializer(abc.ABC):
    """What a table is filled from.

    Attributes:
        key_dtype: The keys' type.
        value_dtype: The values' type.
    """

    key_dtype: DType
    value_dtype: DType

    @abc.abstractmethod
    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """Return keys `[n]` and values `[n]`."""

    def initialize(self, table: "Fillable") -> None:
        """Fill a table; a program's own initializer may do it otherwise, or not at all."""
        table.fill(*self.read())


class Fillable(Protocol):
    """A table that can be filled."""

    def fill(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Take keys and values."""


class KeyValueTensorInitializer(TableInitializer):
    """Keys and values that tensors hold. Programs, and Keras, make their own of it.

    Ref: https://www.tensorflow.org/api_docs/python/tf/lookup/KeyValueTensorInitializer
    """

    def __init__(
        self, keys: Any, values: Any, key_dtype: Any = None, value_dtype: Any = None, name: str | None = None
    ) -> None:
        """Hold `keys` and `values`, which have one shape; they may be given types."""
        self._keys, self._values = convert_to_tensor(keys, key_dtype), convert_to_tensor(values, value_dtype)
        self.key_dtype, self.value_dtype = as_dtype(self._keys.dtype), as_dtype(self._values.dtype)

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        keys, values = np.asarray(self._keys), np.asarray(self._values)
        if keys.shape != values.shape:
            raise invalid(f"Expected shape {_sizes(keys)} for value, got {_sizes(values)}")
        return keys.reshape(-1), values.reshape(-1)


def _sizes(array: np.ndarray) -> str:
    return "[" + ",".join(map(str, array.shape)) + "]"


class TextFileIndex:
    """What of a line is a key or a value; or the number of a column.

    Ref: https://www.tensorflow.org/api_docs/python/tf/lookup/TextFileIndex
    """

    WHOLE_LINE = -2
    LINE_NUMBER = -1


class TextFileInitializer(TableInitializer):
    """Keys and values that the lines of a file hold.

    Ref: https://www.tensorflow.org/api_docs/python/tf/lookup/TextFileInitializer
    """

    def __init__(
        self,
        filename: Any,
        key_dtype: Any,
        key_index: int,
        value_dtype: Any,
        value_index: int,
        vocab_size: int | None = None,
        delimiter: str = "\t",
        name: str | None = None,
        value_index_offset: int = 0,
    ) -> None:
        r"""Name the file, and where in its lines keys and values are.

        Args:
            filename: The file, also in a bucket.
            key_dtype: The keys' type: int64 of line numbers, tf.string of whole lines, either of columns.
            key_index: The column, from 0 on; or what `TextFileIndex` says.
            value_dtype: The values' type, likewise.
            value_index: Where the values are, likewise.
            vocab_size: How many lines to read; all of them if None.
            delimiter: What stands between columns.
            name: Unused.
            value_index_offset: What is added to line numbers that are values.

        Raises:
            ValueError: If the types do not go with what is taken, or there is no filename.
        """
        path = filename.item() if isinstance(filename, HostTensor) else filename
        if not path:
            raise ValueError("`filename` argument required for tf.lookup.TextFileInitializer")
        self._filename = path.decode() if isinstance(path, bytes) else str(path)
        self.key_dtype, self.value_dtype = as_dtype(key_dtype), as_dtype(value_dtype)
        for kind, dtype, index in (("key", self.key_dtype, key_index), ("value", self.value_dtype, value_index)):
            _check_index(kind, dtype, index)
        if vocab_size is not None and vocab_size <= 0:
            raise ValueError(f"`vocab_size` should be > 0, received: {vocab_size}")
        self._key_index, self._value_index = key_index, value_index
        self._size, self._delimiter, self._offset = vocab_size, delimiter.encode(), value_index_offset

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        try:
            with GFile(self._filename, "rb") as file:
                lines = file.read().splitlines()
        except NotFoundError:
            raise NotFoundError(None, None, f"{self._filename}; No such file or directory") from None
        if self._size is not None and len(lines) < self._size:
            raise invalid(f"Invalid vocab_size in {self._filename}: expected {self._size} but got {len(lines)}")
        lines = lines[: self._size]
        columns = max(self._key_index, self._value_index) + 1
        rows = [line.split(self._delimiter) for line in lines] if columns > 0 else []
        for number, row in enumerate(rows):
            if len(row) < columns:
                text = lines[number].decode(errors="backslashreplace")
                raise invalid(
                    f"Invalid number of columns in {self._filename} line {number} ({text}) : expected at least {columns} "
                    f"got {len(row)}"
                )
        keys = self._column(lines, rows, self._key_index, self.key_dtype)
        values = self._column(lines, rows, self._value_index, self.value_dtype)
        return keys, values + self._offset if self._value_index == TextFileIndex.LINE_NUMBER else values

    def _column(self, lines: list[bytes], rows: list[list[bytes]], index: int, dtype: DType) -> np.ndarray:
        if index == TextFileIndex.LINE_NUMBER:
            return np.arange(len(lines))
        texts = lines if index == TextFileIndex.WHOLE_LINE else [row[index] for row in rows]
        if dtype is _dtypes.string:
            column = np.empty(len(texts), object)
            column[:] = texts
            return column
        try:
            return read_numbers(texts, np.dtype(dtype.as_numpy_dtype))
        except UnreadableNumberError as error:
            text = texts[error.number].decode(errors="backslashreplace")
            raise invalid(
                f"Field {text} in line {error.number} of {self._filename} is not a valid {dtype.name}."
            ) from None


def _check_index(kind: str, dtype: DType, index: int) -> None:
    if index < TextFileIndex.WHOLE_LINE:
        raise ValueError(f"`{kind}_index` should be >= {TextFileIndex.WHOLE_LINE}, received: {index}.")
    if index == TextFileIndex.LINE_NUMBER and dtype is not _dtypes.int64:
        raise ValueError(f"`{kind}_dtype` must be int64 for `{kind}_index` {index}, received: {dtype}")
    if index == TextFileIndex.WHOLE_LINE and dtype is not _dtypes.string and not dtype.is_integer:
        raise ValueError(
            f"`{kind}_dtype` should be either integer or string for `{kind}_index` {index}, received: {dtype}"
        )
