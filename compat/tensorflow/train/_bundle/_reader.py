"""Checkpoints in TensorFlow's format: an index of what tensors there are, and files with their bytes.

Ref: https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/util/tensor_bundle/tensor_bundle.h
"""

import contextlib
import os
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

import google_crc32c
import numpy as np
from google.protobuf.message import DecodeError

from tfdist_jax import DataLossError as DamagedError
from tfdist_jax.compat.tensorflow.io._messages import BundleEntryProto, BundleHeaderProto
from tfdist_jax.compat.tensorflow.io._records import mask
from tfdist_jax.compat.tensorflow.train._bundle import _values
from tfdist_jax.compat.tensorflow.train._bundle._slice_keys import WHOLE, slice_key
from tfdist_jax.compat.tensorflow.train._bundle._table import read_table

_SLICE = b"\0"  # How the keys of parts of variables begin.
_LITTLE_ENDIAN = 0
VERSION = 1
_SUFFIX = ".index"


class TensorType(NamedTuple):
    """What is known of a tensor without reading it.

    Attributes:
        shape: The shape.
        dtype: The NumPy type, `object` for strings; None if it has none.
        number: TensorFlow's number for the type.
    """

    shape: tuple[int, ...]
    dtype: np.dtype | None
    number: int


def index_of(prefix: str | Path) -> Path:
    """Return the file that makes a checkpoint one: without it, there is none."""
    return Path(f"{prefix}{_SUFFIX}")


def data_file(prefix: str | Path, shard: int, shards: int) -> Path:
    """Return one of the files that hold the bytes of tensors."""
    return Path(f"{prefix}.data-{shard:05d}-of-{shards:05d}")


def stamps_of(prefix: str | Path) -> list[Any]:
    """Return what the files of a checkpoint are like now, to see whether they have changed."""
    index = index_of(prefix)
    found = []
    for file in (index, *sorted(index.parent.glob(f"{_escaped(Path(prefix).name)}.data-*"))):
        with contextlib.suppress(FileNotFoundError):
            status = file.stat()
            found.append((file.name, status.st_ino, status.st_size, status.st_mtime_ns))
    return found


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


@final
class BundleReader:
    """The tensors in one checkpoint.

    Its files stay open, so that it goes on reading the same when others are put in their place.
    """

    def __init__(self, prefix: str | Path) -> None:
        """Read the index.

        Raises:
            FileNotFoundError: If there is no such checkpoint.
            DataLossError: If the index is damaged, or a data file is gone.
            NotImplementedError: If it has been written in another way than TensorFlow's on common machines.
        """
        self.prefix = str(prefix)
        while True:
            before = stamps_of(prefix)
            try:
                self._open()
                return
            except DamagedError:
                if stamps_of(prefix) == before:  # Otherwise another process has put a new one in its place meanwhile.
                    raise

    def _open(self) -> None:
        index = index_of(self.prefix)
        self._entries = read_table(index)
        header = self._decode(BundleHeaderProto, b"")
        if header.endianness != _LITTLE_ENDIAN:
            raise NotImplementedError(f"{index} was written on a big-endian machine. Save it anew on a common one.")
        if header.version.min_consumer > VERSION:
            raise NotImplementedError(
                f"{index} is of version {header.version.min_consumer} of TensorFlow's checkpoints; only up to {VERSION} is known."
            )
        self._shards = header.num_shards
        self._types = {
            key.decode(errors="surrogateescape"): self._type_of(self._decode(BundleEntryProto, key))
            for key in self._entries
            if key and not key.startswith(_SLICE)
        }
        entries = [self._decode(BundleEntryProto, key) for key in self._entries if key]
        needed = {entry.shard_id for entry in entries if entry.size}
        self._handles = {shard: self._open_shard(shard) for shard in sorted(needed)}

    def _decode(self, kind: Any, key: bytes) -> Any:
        index = index_of(self.prefix)
        if key not in self._entries:
            raise DamagedError(f"{index} is damaged: it has no entry {key.decode(errors='replace')!r}.")
        try:
            return kind.FromString(self._entries[key])
        except DecodeError as error:
            name = key.decode(errors="replace")
            raise DamagedError(f"{index} is damaged: its entry {name!r} is no {kind.DESCRIPTOR.name}.") from error

    @staticmethod
    def _type_of(entry: Any) -> TensorType:
        shape = tuple(dim.size for dim in entry.shape.dim)
        return TensorType(shape, _values.dtype_of(entry.dtype), entry.dtype)

    def _open_shard(self, shard: int) -> int:
        file = data_file(self.prefix, shard, self._shards)
        try:
            handle = os.open(file, os.O_RDONLY)
        except FileNotFoundError:
            raise DamagedError(f"The checkpoint {self.prefix} is damaged: {file} is gone.") from None
        weakref.finalize(self, os.close, handle)
        return handle

    @property
    def types(self) -> dict[str, TensorType]:
        """What tensors there are."""
        return self._types

    def read(self, name: str) -> np.ndarray:
        """Return a tensor, strings as `bytes` in an array of objects.

        Raises:
            KeyError: If there is none of this name.
            DataLossError: If it is damaged.
            NotImplementedError: If its elements are neither numbers nor strings.
        """
        kind = self._types[name]
        if kind.dtype is None:
            raise NotImplementedError(
                f"{name!r} in {self.prefix} is of TensorFlow's type {kind.number}, whose values only TensorFlow can read."
            )
        entry = self._decode(BundleEntryProto, name.encode(errors="surrogateescape"))
        if not entry.slices:
            return self._read_entry(name, entry, kind.dtype)
        whole = np.zeros(kind.shape, kind.dtype)
        for part in entry.slices:
            extents = [(each.start, each.length if each.HasField("length") else WHOLE) for each in part.extent]
            place = tuple(slice(start, None if length == WHOLE else start + length) for start, length in extents)
            found = self._decode(BundleEntryProto, slice_key(name, extents))
            value = self._read_entry(name, found, kind.dtype)
            if whole[place].shape != value.shape:
                raise DamagedError(
                    f"{index_of(self.prefix)} is damaged: the part {extents} of {name!r} has the shape {value.shape}, expected "
                    f"{whole[place].shape}."
                )
            whole[place] = value
        return whole

    def _read_entry(self, name: str, entry: Any, dtype: np.dtype) -> np.ndarray:
        shape = self._type_of(entry).shape
        data = self._read_bytes(name, entry)
        if dtype.hasobject:
            return self._decode_strings(name, entry, data, shape)
        self._compare(name, entry, mask(google_crc32c.value(data)))  # type: ignore[arg-type] # Takes arrays, too.
        if data.size != dtype.itemsize * int(np.prod(shape)):
            raise DamagedError(
                f"{index_of(self.prefix)} is damaged: {name!r} has {data.size} bytes, expected {dtype} of shape {shape}."
            )
        return data.view(dtype).reshape(shape)

    def _decode_strings(self, name: str, entry: Any, data: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        count = int(np.prod(shape))
        try:
            strings, crc = _values.decode_strings(data.tobytes(), count)
        except (IndexError, ValueError):
            raise self._damage(name, entry) from None
        self._compare(name, entry, crc)
        array = np.empty(count, object)
        array[:] = strings
        return array.reshape(shape)

    def _read_bytes(self, name: str, entry: Any) -> np.ndarray:
        if not entry.size:
            return np.empty(0, np.uint8)
        handle, end = self._handles[entry.shard_id], entry.offset + entry.size
        length = os.fstat(handle).st_size
        if not 0 <= entry.offset < end <= length:
            file = data_file(self.prefix, entry.shard_id, self._shards)
            raise DamagedError(
                f"{file} is damaged: it has {length} bytes, expected the tensor {name!r} in bytes {entry.offset} to {end}."
            )
        data, done = np.empty(entry.size, np.uint8), 0
        while done < entry.size and (count := os.preadv(handle, [data[done:].data], entry.offset + done)):
            done += count
        return data  # What is cut just now is found by the checksum.

    def _compare(self, name: str, entry: Any, crc: int) -> None:
        if crc != entry.crc32c:
            raise self._damage(name, entry)

    def _damage(self, name: str, entry: Any) -> DamagedError:
        file = data_file(self.prefix, entry.shard_id, self._shards)
        return DamagedError(
            f"{file} is damaged: bytes {entry.offset} to {entry.offset + entry.size} do not hold the tensor {name!r} that was "
            "written, by their checksum."
        )

    def check(self) -> None:
        """Compare all tensors with their checksums.

        Raises:
            DataLossError: If one is damaged.
        """
        for name, entry in self._all_entries():
            data = self._read_bytes(name, entry)
            if entry.dtype == _values.STRING:
                self._decode_strings(name, entry, data, self._type_of(entry).shape)
            elif entry.dtype != _values.VARIANT:
                self._compare(name, entry, mask(google_crc32c.value(data)))  # type: ignore[arg-type]

    def _all_entries(self) -> Iterator[tuple[str, Any]]:
        """Yield names and entries of what has bytes of its own."""
        for key in self._entries:
            entry = self._decode(BundleEntryProto, key) if key else None
            if entry is not None and not entry.slices:
                yield key.decode(errors="backslashreplace"), entry
