"""Files of cached elements: arrays in blocks with checksums, and an index at the end that says where they lie.

A file gets its name when everything is in it, so one that is there is whole unless it has been damaged. Nothing in it is
executed when it is read: it holds numbers, strings, and JSON.
"""

import base64
import contextlib
import errno
import json
import mmap
import os
import shutil
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import google_crc32c
from etils import epath

from tfdist_jax._checkpoint._checkpoint import put_on_disk
from tfdist_jax.compat.tensorflow._platform._errors import DataLossError, NotFoundError
from tfdist_jax.compat.tensorflow.data import _unfinished
from tfdist_jax.compat.tensorflow.io._records import frame

ALIGNMENT = 64
"""Arrays begin at multiples of so many bytes."""

_MAGIC = b"TFDcache"
_HEAD = _MAGIC.ljust(ALIGNMENT, b"\0")
_END = struct.Struct("<QQ8s")  # Place and length of the index, and the magic word.
_FRAME = 12, 4
VERSION = 1
"""Goes up when files that are written can no longer be read by what was released before."""


def is_url(path: str) -> bool:
    """Tell whether a path is one in a bucket."""
    return "://" in path


@final
class CacheWriter:
    """A cache file on its way to the disk, or to a bucket."""

    def __init__(self, path: str) -> None:
        """Begin a file that will be `path`; what stopped processes have left of it is removed.

        Raises:
            NotFoundError: If its folder is not there.
        """
        self._path = path
        local = Path(tempfile.gettempdir(), os.path.basename(path)) if is_url(path) else Path(path)
        part = _unfinished.beside(local)
        try:
            # Nobody looks for what stopped processes have left between the file and its lock.
            with _unfinished.alone_in(local.parent):
                _unfinished.remove_rests(local)
                self._file = part.open("xb+", buffering=0)
                self._unfinished = _unfinished.Unfinished(part, self._file.close)
        except FileNotFoundError:
            raise NotFoundError(None, None, f"{path}: its folder is not there; make it first.") from None
        self._end = 0
        self.append(_HEAD)

    def append(self, data: bytes) -> int:
        """Write bytes at the end; return where they begin, which is aligned."""
        start = self.reserve(len(data))
        self.put(start, data)
        return start

    def reserve(self, length: int) -> int:
        """Return where `length` bytes may be put."""
        start = -(-self._end // ALIGNMENT) * ALIGNMENT
        self._end = start + length
        return start

    def put(self, start: int, data: "bytes | memoryview") -> None:
        """Write bytes at a place.

        Raises:
            OSError: If the disk is full.
        """
        left = memoryview(data).cast("B")
        try:
            self._file.seek(start)
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise OSError(
                error.errno, f"{os.strerror(error.errno or 0)}, while a cache is written", self._path
            ) from error

    def read(self, start: int, length: int) -> bytes:
        """Return bytes that have been written; zeros where none have."""
        self._file.seek(start)
        return self._file.read(length).ljust(length, b"\0")

    def finish(self, index: Mapping[str, Any]) -> bool:
        """Write the index, and give the file its name; return False if another writer has been faster."""
        try:
            data = frame(json.dumps({**index, "version": VERSION}).encode())
            start = self.append(data)
            self.put(self._end, _END.pack(start, len(data), _MAGIC))
            os.fsync(self._file.fileno())
        except BaseException:
            self.discard()
            raise
        self._file.close()
        return self._unfinished.finish(self._publish)

    def _publish(self) -> bool:
        part, is_first = self._unfinished.path, True
        if is_url(self._path):
            try:
                with part.open("rb") as source, epath.Path(self._path).open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
            finally:
                part.unlink()
            return True
        try:
            _give_name(part, Path(self._path))
        except FileExistsError:
            is_first = False
        part.unlink(missing_ok=True)
        put_on_disk(Path(self._path).parent)
        return is_first

    def discard(self) -> None:
        """Remove what is written."""
        self._unfinished.discard()


def _give_name(part: Path, path: Path) -> None:
    """Give a file its name; one that is there stays.

    Raises:
        FileExistsError: If there is one.
    """
    try:
        os.link(part, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        part.replace(path)  # There are no links on this file system.


def identity(path: str) -> tuple[int, ...] | None:
    """Return what tells the file at a path from those before and after it; None if there is none."""
    if is_url(path):
        found = epath.Path(path)
        return (found.stat().length, int(found.stat().mtime)) if found.exists() else None
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


@final
class CacheFile:
    """A whole cache file.

    Attributes:
        path: Its name.
        index: What the writer has said of it.
    """

    def __init__(self, path: str) -> None:
        """Open a file; from a bucket it is fetched.

        Raises:
            DataLossError: If it is none, or its index is damaged.
            NotImplementedError: If a newer version of this project has written it.
        """
        self.path = path
        with _local(path) as file:
            length = file.seek(0, os.SEEK_END)
            self._bytes: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if length else b""
        self.index = self._read_index()
        if self.index["version"] > VERSION:
            raise NotImplementedError(
                f"The cache {path} is of version {self.index['version']}, and this version of tfdist_jax reads those up to {VERSION}: "
                "delete it, or use a newer tfdist_jax."
            )

    def _read_index(self) -> dict[str, Any]:
        length = len(self._bytes)
        place = max(length - _END.size, 0)
        if length < ALIGNMENT + _END.size or self._bytes[: len(_MAGIC)] != _MAGIC:
            raise self.damaged(0, "it does not begin as one")
        start, size, magic = _END.unpack(self._bytes[place:])
        if magic != _MAGIC or start + size != place:
            raise self.damaged(place, "its end is missing")
        data = self._bytes[start:place]
        before, after = _FRAME
        if data != frame(data[before : len(data) - after]):
            raise self.damaged(start, "its index has changed")
        return json.loads(data[before : len(data) - after])

    def damaged(self, place: int, why: str) -> DataLossError:
        """Return the error for damage at a place."""
        return DataLossError(
            None,
            None,
            f"{self.path} is no whole cache of a dataset: {why}, at byte {place}. Delete it: the next iteration writes it again.",
        )

    def check(self, start: int, length: int, crc: int) -> None:
        """Compare bytes with their checksum.

        Raises:
            DataLossError: If they have changed.
        """
        if google_crc32c.value(self._bytes[start : start + length]) != crc:
            raise self.damaged(start, f"the checksum of {length} bytes is another one")

    @property
    def memory(self) -> Any:
        """The bytes of the file, as it lies on the disk."""
        return self._bytes


@contextlib.contextmanager
def _local(path: str) -> Any:
    if not is_url(path):
        with Path(path).open("rb") as file:
            yield file
        return
    with tempfile.TemporaryFile() as file, epath.Path(path).open("rb") as source:
        shutil.copyfileobj(source, file, 1 << 20)
        file.flush()
        yield file


def as_json(data: bytes) -> str:
    """Return bytes as JSON has them."""
    return base64.b64encode(data).decode()


def from_json(text: str) -> bytes:
    """Return the bytes of `as_json`."""
    return base64.b64decode(text)
