"""`Dataset.cache(filename)`: plans whose elements are kept in a file once they have all been seen, in their order.

An iteration writes a file of its own, which gets its name when the last element is in it. So what is there under the name is whole,
whoever else writes at the same time, and whatever stops one of them.
"""

import dataclasses
import functools
import logging
import threading
from collections.abc import Iterator
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._platform._errors import OpError
from tfdist_jax.compat.tensorflow._tensors._shape import TensorSpec
from tfdist_jax.compat.tensorflow.data import _cache_blocks, _cache_file, _cache_rows, _elements, _order
from tfdist_jax.compat.tensorflow.data._cache_blocks import BlockReader, BlockWriter
from tfdist_jax.compat.tensorflow.data._cache_file import CacheFile, CacheWriter
from tfdist_jax.compat.tensorflow.data._cache_rows import RowReader, RowWriter
from tfdist_jax.compat.tensorflow.data._element_parts import ElementParts
from tfdist_jax.compat.tensorflow.data._plan import Batches, Plan, Rows, rows_in_each
from tfdist_jax.compat.tensorflow.data._plan_text import Named
from tfdist_jax.compat.tensorflow.data._seed_log import DataShard, SeedLog
from tfdist_jax.compat.tensorflow.data._spec_messages import decode_spec, encode_spec, fits
from tfdist_jax.compat.tensorflow.data._written import OnDisk, raising_once, written

_logger = logging.getLogger("tfdist_jax")
_FORMAT = "tfdist_jax.cache"

OTHER_ORDER = object()
"""What is found for an iteration that is run again, and had another order than that of the file: the dataset gives it again."""


def cached_in_file(plan: Plan, filename: str) -> Plan:
    """Keep the elements in a file, in their order, once an iteration has come to its end."""
    if isinstance(plan, Rows) and all(map(_has_fixed_bytes, _elements.leaves(plan.make_spec()))):
        return FileCacheRows(plan, filename, CacheFiles(plan, filename))
    return FileCache(plan, filename, CacheFiles(plan, filename))


def _has_fixed_bytes(spec: Any) -> bool:
    return isinstance(spec, TensorSpec) and spec.shape.is_fully_defined() and spec.dtype.name != "string"


@final
class CacheFiles:
    """The files of a cache, one for each part of the data; what is open stays open until there is another one."""

    def __init__(self, plan: Plan, filename: str) -> None:
        """Keep the elements of a plan in files whose names begin so."""
        self._plan, self._filename = plan, filename
        self._open: dict[DataShard | None, tuple[Any, Any, dict[str, list[int]]]] = {}

    @functools.cached_property
    def parts(self) -> ElementParts:
        """How elements are written."""
        return ElementParts(self._plan.make_spec())

    def path(self, share: DataShard | None) -> str:
        """Return the name of the file for a part of the data."""
        part = "" if share is None else f".{share.by}-{share.index}-of-{share.count}"
        return f"{self._filename}{part}.cache"

    def find(self, seed_log: SeedLog) -> Any:
        """Return what reads the file, if it is there; None if not; `OTHER_ORDER` if the iteration is to have another one.

        Raises:
            DataLossError: If it is damaged.
            InvalidArgumentError: If it holds elements of another type.
        """
        found = self._find(seed_log.share)
        if found is None:
            return None
        reader, seeds = found
        # As if they had been drawn now: it is what brings the same order back.
        drawn = seed_log.absolute(seeds)
        if seed_log.is_again and seed_log.earlier() != drawn:
            return OTHER_ORDER
        seed_log.take(drawn)
        return reader

    def reader(self, share: DataShard | None = None) -> Any:
        """Return what reads the file, if it is there."""
        found = self._find(share)
        return None if found is None else found[0]

    def _find(self, share: DataShard | None) -> tuple[Any, dict[str, list[int]]] | None:
        path = self.path(share)
        identity = _cache_file.identity(path)
        if identity is None:
            self._open.pop(share, None)
            return None
        known = self._open.get(share)
        if known is None or known[0] != identity:
            known = identity, *self._read(path)
            self._open[share] = known
        return known[1:]

    def _read(self, path: str) -> tuple[Any, dict[str, list[int]]]:
        file = CacheFile(path)
        index = file.index
        if index.get("format") != _FORMAT:
            raise file.damaged(0, "it is a file of another kind")
        spec, wanted = decode_spec(_cache_file.from_json(index["spec"])), self._plan.make_spec()
        if not fits(spec, wanted):
            raise invalid(
                f"{path} is the cache of another dataset: its elements are {spec}, and those of this one {wanted}. Delete the file, "
                "if the dataset has changed, or give `cache` another name."
            )
        reader = _READERS[index["layout"]](file, self.parts)
        count = self._plan.cardinality()
        if 0 <= count != len(reader) + index["failed"]:
            _logger.warning(
                "%s holds %d elements, and the dataset that is cached has %d: those of the file are given, as in TensorFlow. "
                "Delete it, if the dataset has changed.",
                path,
                len(reader),
                count,
            )
        return reader, index["seeds"]

    def begin(self, share: DataShard | None) -> CacheWriter:
        """Begin a file."""
        return CacheWriter(self.path(share))

    def describe(self, seed_log: SeedLog, failed: int) -> dict[str, Any]:
        """Return what the file's index says of the elements at the end of an iteration, in which so many were errors."""
        spec = _cache_file.as_json(encode_spec(self._plan.make_spec()))
        seeds = seed_log.relative(seed_log.taken())
        return {"format": _FORMAT, "spec": spec, "seeds": seeds, "failed": failed}

    def explain(self) -> str:
        """Return what the file is for, for `Dataset.explain`."""
        path = self.path(None)
        if _cache_file.identity(path) is None:
            return f"elements of the first whole iteration go to {path}, and are read from there afterwards"
        return f"read from {path}: nothing above runs"


_READERS = {_cache_rows.LAYOUT: RowReader, _cache_blocks.LAYOUT: BlockReader}


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class FileCache(Batches, Named, OnDisk):
    """Elements in a file, in blocks."""

    called = "cache"

    parent: Plan
    filename: str
    files: CacheFiles = dataclasses.field(repr=False)

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        try:
            reader = self.files.find(seed_log)
        except OpError as error:
            return raising_once(error)
        return self._others(seed_log, reader) if reader in (None, OTHER_ORDER) else reader.elements()

    def batches(self, seed_log: SeedLog, size: int, *, drop_remainder: bool = False) -> Iterator[Any]:
        try:
            reader = self.files.find(seed_log)
        except OpError as error:
            return raising_once(error)
        is_read = reader not in (None, OTHER_ORDER)
        cut = reader.batches(size, drop_remainder=drop_remainder) if is_read else None
        return super().batches(seed_log, size, drop_remainder=drop_remainder) if cut is None else cut

    def _others(self, seed_log: SeedLog, found: Any) -> Iterator[Any]:
        """Return an iterator over elements that are not in the file, and are written if there is none."""
        if found is OTHER_ORDER:
            return self.parent.elements(seed_log.in_first_repetition().part("cached"))
        elements = self.parent.elements(seed_log.part("cached"))
        if seed_log.is_example:
            return elements
        files, share = self.files, seed_log.share

        def make_writer() -> BlockWriter:
            return BlockWriter(files.begin(share), files.parts, lambda failed: files.describe(seed_log, failed))

        return written(elements, make_writer, self.parent.cardinality())

    def make_spec(self) -> Any:
        return self.parent.make_spec()

    def cardinality(self) -> int:
        return self.parent.cardinality()

    def rows_in_each(self) -> int | None:
        return rows_in_each(self.parent)

    def explain_files(self) -> str:
        return self.files.explain()


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class FileCacheRows(Rows, Named, OnDisk):
    """Rows in a file; those that come from it have negative positions, so that they are none of the parent's."""

    called = "cache"

    parent: Rows
    filename: str
    files: CacheFiles = dataclasses.field(repr=False)
    state: "_RowState" = dataclasses.field(default_factory=lambda: _RowState(), repr=False)

    def get(self, positions: np.ndarray) -> Any:
        self.state.raise_failure()
        reader = self.state.reader
        if positions.ndim == 1 and (positions < 0).any():
            return reader.get(-1 - positions)
        writer, finished = self.state.writer, self.state.finished
        numbers = None if finished is None else finished.numbers_of(positions)
        if numbers is not None:
            return reader.get(numbers)
        try:
            rows = self.parent.get(positions)
        except Exception:
            if writer is not None and len(positions) == 1:
                writer.fail(positions)
            raise
        if writer is not None:
            self.state.put(writer, positions, rows)
        return rows

    def order(self, seed_log: SeedLog) -> Iterator[np.ndarray]:
        try:
            reader = self.files.find(seed_log)
        except OpError as error:
            return raising_once(error)
        if reader is OTHER_ORDER:
            return self.parent.order(seed_log.in_first_repetition().part("cached"))
        if reader is not None:
            self.state.read(reader)
            return (-1 - chunk for chunk in reader.order())
        order = self.parent.order(seed_log.part("cached"))
        return order if seed_log.is_example or self.cardinality() < 0 else self._record(order, seed_log)

    def _record(self, chunks: Iterator[np.ndarray], seed_log: SeedLog) -> Iterator[np.ndarray]:
        """Yield an order; before its last position the rows that nobody has asked for are got, and the file is completed."""
        pieces = list(chunks)
        order = np.concatenate(pieces) if pieces else np.zeros(0, np.int64)
        writer = RowWriter(self.files.begin(seed_log.share), self.files.parts, order)
        self.state.begin(writer)
        try:
            yield from _order.cut(order[:-1])
            self._complete(writer, seed_log)
            yield from _order.cut(order[-1:])
        finally:
            self.state.leave(writer)

    def _complete(self, writer: RowWriter, seed_log: SeedLog) -> None:
        if self.state.writer is not writer:
            return  # A later iteration writes the file, or this one could not.
        missing = writer.missing()
        at_once = max(1, self.at_once())
        for start in range(0, len(missing), at_once):
            self._write_missing(writer, missing[start : start + at_once])
        if self.state.writer is writer and writer.finish(self.files.describe(seed_log, writer.failed_count)):
            self.state.complete(writer, self.files.reader(seed_log.share))

    def _write_missing(self, writer: RowWriter, positions: np.ndarray) -> None:
        try:
            rows = self.parent.get(positions)
        except Exception as error:
            if len(positions) > 1:
                for position in np.split(positions, len(positions)):
                    self._write_missing(writer, position)
            else:  # It comes again, when the row is asked for.
                writer.fail(positions)
                _logger.debug("cache: a row is left out, for an error: %s", error)
        else:
            self.state.put(writer, positions, rows)

    def make_spec(self) -> Any:
        return self.parent.make_spec()

    def cardinality(self) -> int:
        return self.parent.cardinality()

    def at_once(self) -> int:
        return self.parent.at_once()

    def explain_files(self) -> str:
        return self.files.explain()


@final
class _RowState:
    """Which file rows are read from, and which one they are written to: that of the latest iteration that is not over.

    Attributes:
        reader: What reads the file that is there.
        writer: What writes one.
        finished: What has written the one that is read, if this plan has.
    """

    def __init__(self) -> None:
        self.reader: Any = None
        self.writer: RowWriter | None = None
        self.finished: RowWriter | None = None
        self._lock = threading.Lock()
        self._failure: BaseException | None = None

    def read(self, reader: Any) -> None:
        """Read from a file from now on."""
        if reader is not self.reader:
            self.reader, self.finished = reader, None

    def begin(self, writer: RowWriter) -> None:
        """Write to another file from now on."""
        with self._lock:
            earlier, self.writer, self.finished, self._failure = self.writer, writer, None, None
        if earlier is not None:
            earlier.discard()

    def put(self, writer: RowWriter, positions: np.ndarray, rows: Any) -> None:
        """Write rows; after an error nothing more is written."""
        try:
            with self._lock:
                if self.writer is writer:
                    writer.put(positions, rows)
        except BaseException as error:
            self.leave(writer)
            self._failure = error
            raise

    def raise_failure(self) -> None:
        """Raise the error of writing again: after the first one rows are got one by one, as if one of them could not be."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def complete(self, writer: RowWriter, reader: Any) -> None:
        """Read from the file that a writer has finished."""
        self.reader, self.finished = reader, writer

    def leave(self, writer: RowWriter) -> None:
        """Let go of a writer whose iteration is over."""
        with self._lock:
            if self.writer is writer:
                self.writer = None
        writer.discard()
