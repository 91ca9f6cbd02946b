"""Saved checkpoints of either format: a folder of Orbax's, or TensorFlow's own files."""

from pathlib import Path
from typing import Any

from tfdist_jax import DataLossError as DamagedError
from tfdist_jax._checkpoint import _checkpoint
from tfdist_jax.compat.tensorflow.train._bundle import _writer
from tfdist_jax.compat.tensorflow.train._bundle._reader import BundleReader, index_of, stamps_of


def is_bundle(path: str | Path) -> bool:
    """Tell whether there is a checkpoint in TensorFlow's format. If there is one of each, it is the newer one."""
    return index_of(_checkpoint.local_path(path)).is_file()


def is_saved(path: str | Path) -> bool:
    """Tell whether there is a checkpoint; what is gone of it since is for `must_be_whole` to find."""
    return is_bundle(path) or _checkpoint.is_saved(path)


# What TensorFlow's files were like when they were last compared with their checksums, and what was wrong then.
_found: dict[str, tuple[list[Any], str | None]] = {}


def must_be_whole(path: str | Path) -> None:
    """Compare a checkpoint with its digests; again, only if files have changed.

    Raises:
        DataLossError: If it is damaged.
        FileNotFoundError: If there is none.
    """
    if not is_bundle(path):
        return _checkpoint.must_be_whole(path)
    prefix = str(_checkpoint.local_path(path).absolute())
    stamps = stamps_of(prefix)
    if prefix not in _found or _found[prefix][0] != stamps:
        _found[prefix] = stamps, _find_damage(prefix)
    damage = _found[prefix][1]
    if damage is not None:
        raise DamagedError(damage)
    return None


def note_written(path: str | Path) -> None:
    """Spare comparing TensorFlow's files that have just been written."""
    prefix = str(_checkpoint.local_path(path).absolute())
    _found[prefix] = stamps_of(prefix), None


def _find_damage(prefix: str) -> str | None:
    try:
        BundleReader(prefix).check()
    except DamagedError as error:
        return str(error)
    return None


def delete(path: str | Path) -> None:
    """Remove a checkpoint, if it is there; one that is half removed is never taken for complete."""
    delete_bundle(path)
    _checkpoint.delete(path)


def delete_bundle(path: str | Path) -> None:
    """Remove a checkpoint in TensorFlow's format, if it is there."""
    local = _checkpoint.local_path(path)
    with _checkpoint.alone_in(local.absolute().parent):
        _writer.delete_bundle(local)


def clear_leftovers(folder: str | Path, prefix: str) -> None:
    """Remove what processes have left behind that were stopped while they saved or removed.

    Args:
        folder: Where no process of another program is saving under such names.
        prefix: How the checkpoints' names begin.
    """
    _checkpoint.clear_leftovers(folder, prefix)
    local = _checkpoint.local_path(folder)
    with _checkpoint.alone_in(local.absolute()):
        _writer.clear_leftovers(local, prefix)
