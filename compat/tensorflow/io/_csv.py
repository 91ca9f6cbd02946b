"""`tf.io.decode_csv`: lines of values with something between them, as columns."""

import codecs
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._ops._host_operation import strings_of
from tfdist_jax.compat.tensorflow._tensors._dtypes import DType, as_dtype
from tfdist_jax.compat.tensorflow._tensors._host_part import computes_rows
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow._tensors._text_numbers import UnreadableNumberError, read_numbers

# With what messages call them.
_TYPES = {"float32": "float", "float64": "double", "int32": "int32", "int64": "int64", "string": "string"}
_QUOTE = ord('"')
# The fewest lines that are worth Arrow's start.
_FEWEST = 16


@computes_rows
def decode_csv(
    records: Any,
    record_defaults: Sequence[Any],
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    select_cols: Sequence[int] | None = None,
    name: str | None = None,
) -> list[Any]:
    """Return a tensor `[...]` for each column.

    Args:
        records: Lines `[...]`.
        record_defaults: For each column a value of its type, which stands where it is empty; an empty list where it must not be.
        field_delim: The character between values.
        use_quote_delim: Whether values may stand between `"`, two of which are one within.
        na_value: What else counts as empty.
        select_cols: Which columns are wanted, rising; all if None.
        name: Unused.

    Raises:
        InvalidArgumentError: If a line is not like that.
        ValueError: If `select_cols` do not rise.
    """
    texts = strings_of(records)
    table = CsvTable(record_defaults, field_delim, na_value, select_cols, use_quote_delim=use_quote_delim)
    columns = table.columns(texts.reshape(-1).tolist())
    return [
        convert_to_tensor(column.reshape(texts.shape), dtype)
        for column, dtype in zip(columns, table.types, strict=True)
    ]


class CsvTable:
    """How lines become columns.

    Attributes:
        types: The columns' types.
        quotes: Whether values may stand between quotes.
    """

    def __init__(
        self,
        record_defaults: Sequence[Any],
        field_delim: str,
        na_value: str,
        select_cols: Sequence[int] | None,
        *,
        use_quote_delim: bool,
    ) -> None:
        """Take what `decode_csv` takes."""
        if len(field_delim) != 1:
            raise invalid("field_delim should be only 1 char")
        if select_cols is not None and any(a >= b for a, b in itertools.pairwise(select_cols)):
            raise ValueError("select_cols is not strictly increasing.")
        if not len(record_defaults):
            raise invalid(
                "`record_defaults` is empty: it says which columns there are. Give a default, or `[]`, for each."
            )
        if select_cols is not None and len(select_cols) != len(record_defaults):
            raise ValueError("Length of select_cols and record_defaults do not match.")
        defaults = [_default(i, value) for i, value in enumerate(record_defaults)]
        self.types = [dtype for dtype, _ in defaults]
        self._defaults = [value for _, value in defaults]
        self._delimiter, self._missing = field_delim.encode(), na_value.encode()
        self._chosen = select_cols
        self.quotes = use_quote_delim

    def columns(self, lines: Sequence[bytes], *, numbered: bool = True) -> list[np.ndarray]:
        """Return an array for each column; messages say the line's number if lines are `numbered`, and else an empty one is a value."""
        columns = self._read_plain(lines, numbered=numbered) if len(lines) >= _FEWEST else None
        if columns is None:
            fields = self._split_each(lines, numbered=numbered)
            columns = [self._column(i, texts, numbered=numbered) for i, texts in enumerate(fields)]
        return columns

    def _read_plain(self, lines: Sequence[bytes], *, numbered: bool) -> list[np.ndarray] | None:
        """Return the columns as Arrow reads them; None where it would read other ones than TensorFlow, or finds something wrong."""
        whole = b"\n".join(lines)
        count = lines[0].count(self._delimiter) + 1
        chosen = list(range(count)) if self._chosen is None else self._chosen
        if len(chosen) != len(self.types) or chosen[-1] >= count or not self._is_plain(lines, whole):
            return None
        kinds = {i: dtype.as_numpy_dtype for i, dtype in zip(chosen, self.types, strict=True)}
        read = _read_with_arrow(whole, self._delimiter, count, kinds, self._missing)
        if read is None:
            return None
        if any(column.null_count and default is None for column, default in zip(read, self._defaults, strict=True)):
            return None
        return [
            self._column(i, column.to_pylist(), numbered=numbered)
            if self.types[i].name == "string"
            else column.fill_null(self._defaults[i]).to_numpy().copy()
            for i, column in enumerate(read)
        ]

    def _is_plain(self, lines: Sequence[bytes], whole: bytes) -> bool:
        """Whether each line is a row to Arrow too, whose values stand between no quotes and are no hexadecimal numbers."""
        odd = [b"\r", b"0x", b"0X", *([b'"'] if self.quotes else [])]
        return (
            all(lines)
            and len(self._delimiter) == 1
            and whole.count(b"\n") == len(lines) - 1
            and not whole.startswith(codecs.BOM_UTF8)
            and not any(mark in whole for mark in odd)
        )

    def _split_each(self, lines: Sequence[bytes], *, numbered: bool) -> list[list[bytes]]:
        """Return the fields of each column.

        Raises:
            InvalidArgumentError: If a line has too many or too few.
        """
        rows = [self._fields(line) if line or numbered else [line] for line in lines]
        if self._chosen is not None:
            rows = [[row[i] for i in self._chosen] if len(row) > self._chosen[-1] else row for row in rows]
        count = len(self.types)
        for number, row in enumerate(rows):
            if len(row) != count:
                raise invalid(f"Expect {count} fields but have {len(row)} in record{f' {number}' if numbered else ''}")
        return [[row[i] for row in rows] for i in range(count)]

    def is_open(self, line: bytes) -> bool:
        """Whether a line ends within quotes that stand at the beginning of a value, so that the next one belongs to it."""
        at = 0
        while at < len(line):
            if line[at] == _QUOTE:
                end = line.find(b'"', at + 1)
                while end >= 0 and line[end + 1 : end + 2] == b'"':
                    end = line.find(b'"', end + 2)
                if end < 0:
                    return True
                at = end
            at = line.find(self._delimiter, at) + 1
            if not at:
                return False
        return False

    def _fields(self, line: bytes) -> list[bytes]:
        if not line:
            return []
        if self.quotes and b'"' in line:
            return list(_quoted_fields(line, self._delimiter))
        if self.quotes and (b"\n" in line or b"\r" in line):
            raise invalid("Unquoted fields cannot have quotes/CRLFs inside")
        return line.split(self._delimiter)

    def _column(self, number: int, fields: list[bytes], *, numbered: bool) -> np.ndarray:
        dtype, default = self.types[number], self._defaults[number]
        if b"" in fields or self._missing in fields:
            missing = [not field or field == self._missing for field in fields]
            if default is None:
                record = f" {missing.index(True)}" if numbered else ""
                raise invalid(f"Field {number} is required but missing in record{record}!")
            fill = default if dtype.name == "string" else repr(default).encode()
            fields = [fill if is_missing else field for field, is_missing in zip(fields, missing, strict=True)]
        if dtype.name == "string":
            column = np.empty(len(fields), object)
            column[:] = fields
            return column
        return _numbers(number, fields, dtype, numbered=numbered)


def _read_with_arrow(
    whole: bytes, delimiter: bytes, count: int, kinds: Mapping[int, Any], missing: bytes
) -> list[Any] | None:
    """Return columns of lines, by their numbers and the types of their values; None if a line is another."""
    import pyarrow
    from pyarrow import csv

    names = [str(i) for i in range(count)]
    types = {
        names[i]: pyarrow.binary() if kind is object else pyarrow.from_numpy_dtype(kind) for i, kind in kinds.items()
    }
    try:
        return csv.read_csv(
            pyarrow.py_buffer(whole),
            csv.ReadOptions(use_threads=False, block_size=len(whole) + 1, column_names=names),
            csv.ParseOptions(delimiter=delimiter.decode(), quote_char=False, ignore_empty_lines=False),
            csv.ConvertOptions(
                check_utf8=False, column_types=types, null_values=["", missing], include_columns=list(types)
            ),
        ).columns
    except pyarrow.ArrowInvalid:
        return None


def _default(number: int, value: Any) -> tuple[DType, Any]:
    """Return a column's type, and its default value; None if it has none."""
    tensor = convert_to_tensor(value)
    dtype = as_dtype(tensor.dtype)
    if dtype.name not in _TYPES:
        allowed = ", ".join(_TYPES.values())
        raise invalid(f"Value for attr 'OUT_TYPE' of {dtype.name} is not in the list of allowed values: {allowed}")
    array = np.ravel(np.asarray(tensor))
    if array.size > 1:
        raise invalid(f"There should only be 1 default per field but field {number} has {array.size}")
    return dtype, array[0].item() if array.size and dtype.name != "string" else (array[0] if array.size else None)


def _numbers(number: int, fields: list[bytes], dtype: DType, *, numbered: bool) -> np.ndarray:
    try:
        return read_numbers(fields, np.dtype(dtype.as_numpy_dtype))
    except UnreadableNumberError as error:
        text = fields[error.number].decode(errors="backslashreplace")
        place = f"record {error.number}" if numbered else "record"
        raise invalid(f"Field {number} in {place} is not a valid {_TYPES[dtype.name]}: {text}") from None


def _quoted_fields(line: bytes, delimiter: bytes) -> Iterator[bytes]:
    """Yield the fields of a line in which some stand between quotes."""
    at = 0
    while True:
        if at < len(line) and line[at] == _QUOTE:
            field, at = _quoted_field(line, at + 1)
            if at < len(line) and line[at : at + 1] != delimiter:
                raise invalid("Quoted field has to end with quote followed by delim or end")
            yield field
        else:
            end = line.find(delimiter, at)
            end = len(line) if end < 0 else end
            field = line[at:end]
            if any(mark in field for mark in (b'"', b"\n", b"\r")):
                raise invalid("Unquoted fields cannot have quotes/CRLFs inside")
            yield field
            at = end
        if at >= len(line):
            return
        at += 1


def _quoted_field(line: bytes, at: int) -> tuple[bytes, int]:
    """Return what stands between quotes, of which the first is before a place, and the place behind the last one."""
    parts = []
    while True:
        end = line.find(b'"', at)
        if end < 0:
            raise invalid("Quoted field has to end with quote followed by delim or end")
        parts.append(line[at:end])
        if line[end + 1 : end + 2] != b'"':
            return b'"'.join(parts), end + 1
        at = end + 2
