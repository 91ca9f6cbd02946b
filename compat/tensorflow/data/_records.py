"""TFRecord files as sequences of records."""

import mmap
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import final, overload

from tfdist_jax.compat.tensorflow._platform._errors import DataLossError

# A record's length and a checksum of it come before its bytes, a checksum of these after them.
_BEFORE, _AFTER = 12, 4


@final
class RecordFile(Sequence[bytes]):
    """The records of a file, found by their number.

    Differs from TensorFlow: checksums are not compared, only whether all bytes are there.
    Ref: https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
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
            length = struct.unpack_from("<Q", self._bytes, at)[0] if start <= len(self._bytes) else 0
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
