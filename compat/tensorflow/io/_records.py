"""TFRecord files: sequences of records, each with its length and checksums.

Ref: https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
"""

import functools
import itertools
import mmap
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, final, overload

import google_crc32c
import numpy as np

from tfdist_jax.compat.tensorflow._platform._errors import DataLossError
from tfdist_jax.compat.tensorflow.io._compression import open_to_read

# A record's length and a checksum of it come before its bytes, a checksum of these after them.
_BEFORE, _AFTER = 12, 4
_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")


def checksum(data: bytes) -> bytes:
    """Return the checksum of bytes as records have it."""
    return _CHECKSUM.pack(mask(google_crc32c.value(data)))


def mask(crc: Any) -> Any:
    """Return a CRC32C, or an array of them, turned, so that it is none of bytes that hold checksums."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame(record: bytes) -> bytes:
    """Return a record with its length and checksums."""
    return b"".join((_make_header(len(record)), record, checksum(record)))


@functools.lru_cache(4096)
def _make_header(length: int) -> bytes:
    packed = _LENGTH.pack(length)
    return packed + checksum(packed)


def read_records(path: str, compression: str = "", buffer_bytes: int | None = None) -> Iterator[bytes]:
    """Return an iterator over the records of a file, which is opened at its first step.

    Raises:
        NotFoundError: If there is no such file.
        DataLossError: If it is damaged, or ends within a record.
    """
    return itertools.chain.from_iterable(_read_together(path, compression, buffer_bytes))


def _read_together(path: str, compression: str, buffer_bytes: int | None) -> Iterator[list[bytes]]:
    """Yield the records of a file, those together that are read at once."""
    at, data, more, missing = 0, b"", b"", 0
    with open_to_read(path, compression, buffer_bytes) as file:
        # Of a large record all at once: bytes that are added to bytes are copied.
        while more := file.read(missing) if missing > len(more) else file.read1():
            data += more
            alike, first_ends = _find_alike(data)
            others, ends, start, missing = _find_others(data, int(first_ends[-1]) + _AFTER if alike else 0)
            records, ends = alike + others, np.concatenate([first_ends, np.array(ends, np.int64)])
            wrong = _find_wrong(data, records, ends)
            yield records[:wrong]
            if wrong is not None:
                place = at + int(ends[wrong]) - len(records[wrong])
                raise DataLossError(None, None, f"{path}: corrupted record at {place}")
            if missing is None:
                raise DataLossError(
                    None, None, f"{path}: corrupted record at {at + start} (Is this even a TFRecord file?)"
                )
            at, data = at + start, data[start:]
        if data:
            raise _truncated(path, at)


def _find_alike(data: bytes) -> tuple[list[bytes], np.ndarray]:
    """Return the records of one length that bytes begin with, if there are several, and where they end."""
    header = data[:_BEFORE]
    length = _read_length(header) if len(header) == _BEFORE else None
    step = _BEFORE + (length or 0) + _AFTER
    if length is None or data[step : step + _BEFORE] != header:
        return [], np.empty(0, np.int64)
    headers = np.ndarray((len(data) // step,), np.dtype((np.void, _BEFORE)), data, strides=(step,))
    is_alike = headers == headers[0]
    count = len(headers) if is_alike.all() else int(is_alike.argmin())
    starts = range(_BEFORE, count * step, step)
    return [data[start : start + length] for start in starts], np.arange(count) * step + (step - _AFTER)


def _find_others(data: bytes, start: int) -> tuple[list[bytes], list[int], int, int | None]:
    """Find the records from a place on.

    Returns:
        The records, where they end, where the next one begins, and how many of its bytes are missing, if that is known; None if it has
        another length than was written.
    """
    records, ends = [], []
    size = len(data)
    while (first := start + _BEFORE) <= size:
        length = _read_length(data[start:first])
        if length is None:
            return records, ends, start, None
        end = first + length
        if end + _AFTER > size:
            return records, ends, start, end + _AFTER - size
        records.append(data[first:end])
        ends.append(end)
        start = end + _AFTER
    return records, ends, start, 0


def _find_wrong(data: bytes, records: list[bytes], ends: np.ndarray) -> int | None:
    """Return the first record that is not what its checksum, at its end, is of; None if there is none."""
    if not records:
        return None
    written = np.ndarray((len(data) - _AFTER + 1,), "<u4", data, strides=(1,))[ends]
    wrong = mask(np.fromiter(map(google_crc32c.value, records), np.uint32, len(records))) != written
    return int(wrong.argmax()) if wrong.any() else None


@functools.lru_cache(4096)
def _read_length(header: bytes) -> int | None:
    """Return the length in front of a record; None if its checksum is another. Many records of a file have one length."""
    return _LENGTH.unpack_from(header)[0] if header[8:] == checksum(header[:8]) else None


def _truncated(path: str, at: int) -> DataLossError:
    return DataLossError(None, None, f"{path}: truncated record at {at}: the file ends within it.")


@final
class RecordFile(Sequence[bytes]):
    """The records of a file that is not compressed, found by their number.

    Checksums are not compared, only whether all bytes are there.
    """

    def __init__(self, path: str | Path) -> None:
        """Find where the records of a file lie.

        Raises:
            DataLossError: If the file ends within a record.
        """
        with Path(path).open("rb") as file:
            # An empty file cannot be mapped.
            empty = not file.seek(0, 2)
            self._bytes = b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._places = list(self._find(str(path)))

    def _find(self, path: str) -> Iterator[slice]:
        at = 0
        while at < len(self._bytes):
            start = at + _BEFORE
            length = _LENGTH.unpack_from(self._bytes, at)[0] if start <= len(self._bytes) else 0
            at = start + length + _AFTER
            if at > len(self._bytes):
                raise DataLossError(None, None, f"{path} is no TFRecord file, or is truncated.")
            yield slice(start, start + length)

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        places = self._places[index]
        return self._bytes[places] if isinstance(places, slice) else [self._bytes[place] for place in places]
