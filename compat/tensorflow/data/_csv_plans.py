"""The plan of what CSV files hold: tuples of a value for each column."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, final

from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, TensorSpec
from tfdist_jax.compat.tensorflow.data import _elements, _failures
from tfdist_jax.compat.tensorflow.data._file_plans import ReadFiles
from tfdist_jax.compat.tensorflow.data._plan import Plan
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog
from tfdist_jax.compat.tensorflow.io._compression import open_to_read
from tfdist_jax.compat.tensorflow.io._csv import CsvTable

# Lines that are taken apart together.
_AT_ONCE = 256


class _Line(NamedTuple):
    text: bytes
    path: str
    number: int


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ReadCsv(ReadFiles):
    """The rows of CSV files; `table` says what their columns are."""

    called = "CsvDataset"

    parent: Plan
    table: CsvTable = dataclasses.field(repr=False)
    header: bool = False
    compression_type: str = ""
    buffer_size: int | None = None
    num_parallel_reads: int | None = None

    def read(self, path: str) -> Iterator[Any]:
        with open_to_read(path, self.compression_type, self.buffer_size) as file:
            lines = _split_lines(file, path, self.table)
            if self.header and next(lines, None) is None:
                raise InvalidArgumentError(None, None, f"{path}: Can't read header of file")
            yield from lines

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        guarded = _failures.guarded(self._strings(seed_log))
        return _failures.flatten(map(self._rows, _failures.groups(guarded, _AT_ONCE, drop_remainder=False)))

    def batches(self, seed_log: SeedLog, size: int, *, drop_remainder: bool = False) -> Iterator[Any]:
        return _Batches(self, _failures.guarded(self._strings(seed_log)), size, drop_remainder=drop_remainder)

    def make_spec(self) -> Any:
        return tuple(TensorSpec(TensorShape([]), dtype) for dtype in self.table.types)

    def _rows(self, lines: Sequence[Any]) -> Iterator[Any]:
        """Return an iterator over the rows of lines, or, where one is no row, each on its own."""
        try:
            return _elements.rows(self.batch(lines))
        except Exception:
            return map(self.row, lines)

    def row(self, line: Any) -> Any:
        """Return the row of a line, or raise what has come in its place, or that it is none."""
        try:
            return next(_elements.rows(self.batch([line])))
        except InvalidArgumentError as error:
            if type(line) is _Line:
                raise InvalidArgumentError(None, None, f"{line.path}, line {line.number}: {error.message}") from None
            raise

    def batch(self, lines: Sequence[Any]) -> Any:
        """Return the rows of lines as a batch."""
        failed = next((line for line in lines if type(line) is _failures.Failure), None)
        if failed is not None:
            raise failed.error
        return tuple(self.table.columns([line.text for line in lines], numbered=False))


@final
class _Batches(Iterator[Any]):
    """Batches of rows; an error drops the rows that it comes behind, and the next batch begins behind it."""

    def __init__(self, plan: ReadCsv, lines: Iterator[Any], size: int, *, drop_remainder: bool) -> None:
        self._plan, self._lines, self._size = plan, lines, size
        self._least = size if drop_remainder else 1

    def __next__(self) -> Any:
        lines = list(itertools.islice(self._lines, self._size))
        try:
            batch = self._plan.batch(lines) if len(lines) >= self._least else None
        except Exception:
            for number, line in enumerate(lines):
                try:
                    self._plan.row(line)
                except Exception:
                    self._lines = itertools.chain(lines[number + 1 :], self._lines)
                    raise
            raise
        if batch is None:
            raise StopIteration
        return batch


def _split_lines(file: Any, path: str, table: CsvTable) -> Iterator[_Line]:
    """Yield the lines of a file without their ends; within quotes a line goes on."""
    numbers = itertools.count(1)
    for line in file:
        number = next(numbers)
        if table.quotes and b'"' in line:
            while table.is_open(line):
                more = file.readline()
                if not more:
                    raise InvalidArgumentError(
                        None, None, f"{path}, line {number}: Reached end of file without closing quoted field in record"
                    )
                next(numbers)
                line += more
            yield _Line(line.removesuffix(b"\n").removesuffix(b"\r"), path, number)
        else:
            for part in line.removesuffix(b"\n").removesuffix(b"\r").split(b"\r"):
                yield _Line(part, path, number)
