"""A digest at the end of Keras's files, behind what HDF5 reads and as the comment of a zip archive, by which damage is found.

Whoever changes such a file with h5py or zipfile takes it off: these end a file where their own data do.
"""

import contextlib
import os
import zipfile
from pathlib import Path
from typing import Any

import h5py
import xxhash

from tfdist_jax._checkpoint._checkpoint import meanwhile, put_on_disk
from tfdist_jax.compat.tensorflow._platform._errors import DataLossError

_NAME = b"\ntfdist_jax: xxh3_64 of what is before "
_SIZE = len(_NAME) + 16 + 1
_BLOCK_BYTES, _WORTH_A_THREAD_BYTES = 1 << 20, 8 << 20


class DamagedFileError(DataLossError, OSError, ValueError):
    """What Keras's readers raise for files that they cannot read, OSError or ValueError, and what TensorFlow's do."""


def seal(path: Path) -> None:
    """Put the digest at the end of a complete file, and all of it on disk."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path, "a") as archive:
            archive.comment = bytes(_SIZE)
    else:
        os.truncate(path, path.stat().st_size + _SIZE)
    size = path.stat().st_size - _SIZE
    putting = contextlib.nullcontext() if size < _WORTH_A_THREAD_BYTES else meanwhile(lambda: put_on_disk(path))
    with putting, path.open("r+b") as file:
        found = _seal_of(file, size)
        file.seek(size)
        file.write(found)
    put_on_disk(path)


def check(filepath: Any) -> bool:
    """Compare a file of Keras's with its digest.

    Returns:
        Whether it has one; it has none if Keras alone has written it, or others have changed it.

    Raises:
        DamagedFileError: If it does not hold what was written, or cannot be one of Keras's files.
    """
    path = Path(filepath)
    with path.open("rb") as file:
        size = max(path.stat().st_size - _SIZE, 0)
        file.seek(size)
        end = file.read()
        file.seek(0)
        is_sealed = _is_seal(end)
        is_damaged = is_sealed and end != _seal_of(file, size)
    if is_damaged or not _can_be_read(path):
        raise DamagedFileError(f"{path} is damaged: it does not hold what was written.")
    return is_sealed


def _seal_of(file: Any, size: int) -> bytes:
    digest = xxhash.xxh3_64()
    while block := file.read(min(size, _BLOCK_BYTES)):
        digest.update(block)
        size -= len(block)
    return _NAME + digest.hexdigest().encode() + b"\n"


def _is_seal(end: bytes) -> bool:
    """Whether a file ends with a digest, or with what is left of one."""
    same = sum(one == other for one, other in zip(end, _NAME, strict=False))
    return same > len(_NAME) // 2 or _NAME in end or any(end.endswith(_NAME[:i]) for i in range(4, len(_NAME)))


def _can_be_read(path: Path) -> bool:
    if path.suffix == ".keras":
        return zipfile.is_zipfile(path)
    try:
        with h5py.File(path):
            return True
    except OSError:
        return False
