"""Files that are read and written compressed: in gzip's form, in zlib's, or as they are."""

import io
import zlib
from typing import Any, cast, final

from etils import epath

from tfdist_jax.compat.tensorflow._platform._errors import DataLossError, InvalidArgumentError, NotFoundError

# zlib's sign for a form: window of 2 ** 15 bytes, with gzip's header if 16 is added.
_WINDOW_BITS = {"ZLIB": 15, "GZIP": 31}
_BUFFER_BYTES = 1 << 18


def compression_of(compression_type: Any) -> str:
    """Return a compression type, "" for none.

    Raises:
        InvalidArgumentError: If there is none of this name.
    """
    value = getattr(compression_type, "numpy", lambda: compression_type)()
    name = value.decode() if isinstance(value, bytes) else value or ""
    if name and name not in _WINDOW_BITS:
        raise InvalidArgumentError(
            None, None, f'Unsupported compression_type: {name!r}. There are "", "ZLIB" and "GZIP".'
        )
    return name


def open_to_read(path: str, compression: str, buffer_bytes: int | None = None) -> io.BufferedReader:
    """Open a file whose bytes are read as they were before they were compressed.

    Raises:
        NotFoundError: If there is no such file.
        DataLossError: While it is read, if it is damaged.
    """
    try:
        file = epath.Path(path).open("rb")
    except FileNotFoundError:
        raise NotFoundError(None, None, f"{path}; No such file or directory") from None
    raw = _Inflated(file, path, _WINDOW_BITS[compression]) if compression else file
    return io.BufferedReader(cast("io.RawIOBase", raw), buffer_bytes or _BUFFER_BYTES)


def inflate(data: bytes, compression: str) -> bytes:
    """Return what bytes were before they were compressed.

    Raises:
        DataLossError: If they are damaged.
    """
    return _Inflated(io.BytesIO(data), "the string", _WINDOW_BITS[compression]).readall() if compression else data


@final
class _Inflated(io.RawIOBase):
    """A compressed file's bytes; gzip's files may be several, one behind the other."""

    def __init__(self, file: Any, path: str, window_bits: int) -> None:
        super().__init__()
        self._file, self._path, self._window_bits = file, path, window_bits
        self._inflater: Any = None
        self._given = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._inflate(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _inflate(self, most: int) -> bytes:
        while True:
            if not self._given:
                self._given = self._file.read(_BUFFER_BYTES)
            if not self._given:
                if self._inflater is not None:
                    raise DataLossError(None, None, f"{self._path} is truncated: its compressed data have no end.")
                return b""
            self._inflater = self._inflater or zlib.decompressobj(self._window_bits)
            data = self._step(most)
            if data:
                return data

    def _step(self, most: int) -> bytes:
        try:
            data = self._inflater.decompress(self._given, most)
        except zlib.error as error:
            raise DataLossError(None, None, f"{self._path}: inflate() failed: {error}") from None
        if self._inflater.eof:
            self._given, self._inflater = self._inflater.unused_data, None
        else:
            self._given = self._inflater.unconsumed_tail
        return data

    def close(self) -> None:
        self._file.close()
        super().close()
