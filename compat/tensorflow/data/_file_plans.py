"""Plans of what files hold: records, lines, pieces of equal length."""

import abc
import dataclasses
import functools
import io
from collections.abc import Iterator
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow._platform._errors import DataLossError, InvalidArgumentError
from tfdist_jax.compat.tensorflow._tensors._dtypes import string
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, TensorSpec
from tfdist_jax.compat.tensorflow.data import _failures, _mapping
from tfdist_jax.compat.tensorflow.data._plan import Plan, Uncounted
from tfdist_jax.compat.tensorflow.data._plan_text import Named
from tfdist_jax.compat.tensorflow.data._prefetch import prefetched
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog
from tfdist_jax.compat.tensorflow.io._compression import open_to_read
from tfdist_jax.compat.tensorflow.io._records import read_records

# Strings of a file that is read beside others which its thread has ready.
_AHEAD = 256


class ReadFiles(Uncounted, Named):
    """The strings in the files that `parent` names, one file after the other.

    With `num_parallel_reads` as many are read at once, each in a thread, and one string of each comes in turn.
    """

    parent: Plan
    compression_type: str
    buffer_size: int | None
    num_parallel_reads: int | None

    @abc.abstractmethod
    def read(self, path: str) -> Iterator[Any]:
        """Yield the strings of a file."""

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        return map(_as_element, self._strings(seed_log))

    def batches(self, seed_log: SeedLog, size: int, *, drop_remainder: bool = False) -> Iterator[Any]:
        return map(_as_batch, _failures.groups(self._strings(seed_log), size, drop_remainder=drop_remainder))

    def _strings(self, seed_log: SeedLog) -> Iterator[Any]:
        files = map(self._read_named, self.parent.elements(seed_log.part("files")))
        if self.num_parallel_reads is None:
            return _failures.flatten(files)
        ahead = map(functools.partial(prefetched, depth=_AHEAD), files)
        return _failures.raising(_mapping.in_turn(_failures.guarded(ahead), self.num_parallel_reads, 1))

    def _read_named(self, name: Any) -> Iterator[Any]:
        return self.read(np.asarray(name).item().decode())

    def reading_ahead(self) -> Plan:
        if self.num_parallel_reads is not None:
            return self
        return dataclasses.replace(self, num_parallel_reads=1)  # pyright: ignore[reportArgumentType] -- Each kind is one.

    def make_spec(self) -> Any:
        return TensorSpec(TensorShape([]), string)


def _as_element(text: bytes) -> np.ndarray:
    return np.array(text, object)


def _as_batch(texts: list[bytes]) -> np.ndarray:
    return np.array(texts, object)


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ReadRecords(ReadFiles):
    """The records of TFRecord files."""

    called = "TFRecordDataset"

    parent: Plan
    compression_type: str = ""
    buffer_size: int | None = None
    num_parallel_reads: int | None = None

    def read(self, path: str) -> Iterator[bytes]:
        return read_records(path, self.compression_type, self.buffer_size)


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ReadLines(ReadFiles):
    """The lines of text files, without their ends."""

    called = "TextLineDataset"

    parent: Plan
    compression_type: str = ""
    buffer_size: int | None = None
    num_parallel_reads: int | None = None

    def read(self, path: str) -> Iterator[bytes]:
        with open_to_read(path, self.compression_type, self.buffer_size) as file:
            for line in file:
                # As in TensorFlow, a carriage return is no part of a line, wherever it is.
                yield line.removesuffix(b"\n").replace(b"\r", b"")


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ReadPieces(ReadFiles):
    """Pieces of `record_bytes` bytes; the first and last bytes of a file are left out."""

    called = "FixedLengthRecordDataset"

    parent: Plan
    record_bytes: int
    header_bytes: int = 0
    footer_bytes: int = 0
    compression_type: str = ""
    buffer_size: int | None = None
    num_parallel_reads: int | None = None

    def read(self, path: str) -> Iterator[bytes]:
        with open_to_read(path, self.compression_type, self.buffer_size) as file:
            length = self._find_length(path, file)
            body = length - self.header_bytes - self.footer_bytes
            if body < 0 or body % self.record_bytes:
                kind = DataLossError if self.compression_type else InvalidArgumentError
                raise kind(
                    None,
                    None,
                    f"Excluding the header ({self.header_bytes} bytes) and footer ({self.footer_bytes} bytes), input file "
                    f'"{path}" has body length {body} bytes, which is not an exact multiple of the record length '
                    f"({self.record_bytes} bytes).",
                )
            file.read(self.header_bytes)
            for _ in range(body // self.record_bytes):
                yield file.read(self.record_bytes)

    def _find_length(self, path: str, file: Any) -> int:
        if not self.compression_type:
            length = file.seek(0, io.SEEK_END)
            file.seek(0)
            return length
        # Only reading it tells how long it is.
        with open_to_read(path, self.compression_type, self.buffer_size) as other:
            return sum(map(len, iter(lambda: other.read(1 << 20), b"")))
