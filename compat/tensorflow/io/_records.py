"""TFRecord files: sequences of records, each with its length and checksums.

Ref: https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
"""

import functools
import mmap
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import final, overload

import google_crc32c

from tfdist_jax.compat.tensorflow._platform._errors import DataLossError
from tfdist_jax.compat.tensorflow.io._compression import open_to_read

# A record's length and a checksum of it come before its bytes, a checksum of these after them.
_BEFORE, _AFTER = 12, 4
_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")


def checksum(data: bytes) -> bytes:
    """Return the checksum of bytes as records have it."""
    return _CHECKSUM.pack(mask(google_crc32c.value(data)))


def mask(crc: int) -> int:
    """Return a CRC32C turned, so that it is none of bytes that hold checksums."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame(record: bytes) -> bytes:
    """Return a record with its length and checksums."""
    length = _LENGTH.pack(len(record))
    return b"".join((length, checksum(length), record, checksum(record)))


def read_records(path: str, compression: str = "", buffer_bytes: int | None = None) -> Iterator[bytes]:
    """Yield the records of a file.

    Raises:
        NotFoundError: If there is no such file.
        DataLossError: If it is damaged, or ends within a record.
    """
    at, data = 0, b""
    with open_to_read(path, compression, buffer_bytes) as file:
        while more := file.read1():
            data += more
            start, last = 0, len(data) - _BEFORE
            while start <= last:
                length = _read_length(data[start : start + _BEFORE])
                if length is None:
                    raise DataLossError(
                        None, None, f"{path}: corrupted record at {at + start} (Is this even a TFRecord file?)"
                    )
                first = start + _BEFORE
                end = first + length
                if end + _AFTER > len(data):
                    # Of a large record all at once: bytes that are added to bytes are copied.
                    data += file.read(end + _AFTER - len(data))
                    if end + _AFTER > len(data):
                        break
                record = data[first:end]
                if _CHECKSUM.unpack_from(data, end)[0] != mask(google_crc32c.value(record)):
                    raise DataLossError(None, None, f"{path}: corrupted record at {at + first}")
                yield record
                start = end + _AFTER
            at, data = at + start, data[start:]
        if data:
            raise _truncated(path, at)


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
