"""Writes checkpoints in TensorFlow's format: there completely or not at all, and in the place of another one in one step."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from tfdist_jax import DataLossError as DamagedError
from tfdist_jax._checkpoint._checkpoint import put_on_disk
from tfdist_jax.compat.tensorflow.io._messages import BundleEntryProto, BundleHeaderProto
from tfdist_jax.compat.tensorflow.io._records import mask
from tfdist_jax.compat.tensorflow.train._bundle import _values
from tfdist_jax.compat.tensorflow.train._bundle._reader import VERSION, data_file, index_of
from tfdist_jax.compat.tensorflow.train._bundle._table import make_table, read_table

_NEW = ".new"


def write_bundle(prefix: str | Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write tensors as a checkpoint.

    The index gets its name last, when all is on disk; until then what was there before stays, complete.

    Args:
        prefix: The path, to which the suffixes of the files are added.
        tensors: Arrays by name, strings as objects.

    Raises:
        NotImplementedError: If TensorFlow has no such type.
    """
    index = index_of(prefix)
    index.parent.mkdir(parents=True, exist_ok=True)
    _remove_rests(index)
    # Files of a new name: the index that is there goes on to be one of its own files until it is replaced.
    shards = 2 if _shards_of(index) == 1 else 1
    files = [data_file(prefix, shard, shards) for shard in range(shards)]
    with _removing(files, index):
        entries = _write_data(_new(files[0]), tensors)
        for file in files[1:]:
            _new(file).write_bytes(b"")
        _new(index).write_bytes(make_table(_index_entries(entries, shards)))
        for file in (*files, index):
            put_on_disk(_new(file))
        for file in files:
            _new(file).rename(file)
        put_on_disk(index.parent)
        _new(index).rename(index)
    put_on_disk(index.parent)
    for file in _data_files(prefix):
        if file not in files:
            file.unlink(missing_ok=True)


def _shards_of(index: Path) -> int:
    """Return how many data files the present index has; 0 if there is none that can be read."""
    try:
        return BundleHeaderProto.FromString(read_table(index)[b""]).num_shards
    except (FileNotFoundError, DamagedError, NotImplementedError, KeyError):
        return 0


@contextlib.contextmanager
def _removing(files: list[Path], index: Path) -> Iterator[None]:
    """Let nothing of what was not completed take room on a disk that may be full."""
    try:
        yield
    except BaseException:
        # What stopped it may have come when the index was in its place already.
        named = [] if _shards_of(index) == len(files) else files
        for file in (*map(_new, files), *named, _new(index)):
            file.unlink(missing_ok=True)
        raise


def _new(file: Path) -> Path:
    return file.with_name(file.name + _NEW)


def _write_data(file: Path, tensors: Mapping[str, np.ndarray]) -> dict[bytes, Any]:
    entries, offset = {}, 0
    with file.open("wb", buffering=1 << 20) as writer:
        for key, name in sorted((name.encode(), name) for name in tensors):
            array = np.asarray(tensors[name])
            if array.dtype == object:
                data, crc = _values.encode_strings(_values.strings_of(array))
            else:
                data = _values.bytes_of(array)
                crc = mask(google_crc32c.value(data))  # type: ignore[arg-type] # Takes arrays, too.
            writer.write(data.data)
            entry = BundleEntryProto(dtype=_values.number_of(array.dtype), offset=offset, size=len(data), crc32c=crc)
            entry.shape.SetInParent()
            for size in array.shape:
                entry.shape.dim.add(size=size)
            entries[key] = entry
            offset += len(data)
    return entries


def _index_entries(entries: Mapping[bytes, Any], shards: int) -> Iterator[tuple[bytes, bytes]]:
    header = BundleHeaderProto(num_shards=shards)
    header.version.producer = VERSION
    yield b"", header.SerializeToString()
    for key, entry in entries.items():
        yield key, entry.SerializeToString()


def _remove_rests(index: Path) -> None:
    """Remove what was being written under the same name when it was stopped."""
    for file in (_new(index), *_data_files(index.with_suffix(""))):
        if _is_new(file):
            file.unlink(missing_ok=True)


def delete_bundle(prefix: str | Path) -> None:
    """Remove a checkpoint, if it is there; one that is half removed is none."""
    index_of(prefix).unlink(missing_ok=True)
    for file in _data_files(prefix):
        file.unlink(missing_ok=True)


def _data_files(prefix: str | Path) -> Iterator[Path]:
    """Yield the files with tensors of a checkpoint, those included that are not complete."""
    folder, name = Path(prefix).parent, Path(prefix).name
    if folder.is_dir():
        yield from [file for file in folder.iterdir() if file.name.startswith(f"{name}.data-")]


def _is_new(file: Path) -> bool:
    return file.name.endswith(_NEW)


def clear_leftovers(folder: str | Path, prefix: str) -> None:
    """Remove what processes have left behind that were stopped while they wrote or removed.

    Args:
        folder: Where no process of another program is writing under such names.
        prefix: How the checkpoints' names begin.
    """
    for file in list(Path(folder).iterdir()) if Path(folder).is_dir() else ():
        name, is_data, _ = file.name.partition(".data-")
        is_part = is_data or file.name.removesuffix(_NEW).endswith(".index")
        is_left = _is_new(file) or (is_data and not index_of(Path(folder) / name).exists())
        if file.name.startswith(prefix) and is_part and is_left:
            file.unlink(missing_ok=True)
