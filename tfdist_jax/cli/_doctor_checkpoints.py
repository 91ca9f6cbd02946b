"""Which checkpoints, models and backups of a folder are damaged."""

import re
from collections.abc import Iterator
from pathlib import Path

from tfdist_jax import DataLossError
from tfdist_jax._checkpoint import _checkpoint, _integrity
from tfdist_jax.cli._findings import Findings

_KERAS = (".keras", ".h5", ".hdf5", ".h5.bkp")
_ORBAX = "_CHECKPOINT_METADATA"
_INDEX = ".index"  # Of a checkpoint in TensorFlow's format.
_UNFINISHED = re.compile(r".+\.(new|old)(\..+)?")


def look_at_checkpoints(path: Path, report: Findings) -> None:
    """Compare what was saved with its digests.

    Args:
        path: One thing that was saved, or a folder of them, at any depth.
        report: What is found is told to it.
    """
    try:
        path = _checkpoint.local_path(path)
    except NotImplementedError:
        report.bad(f"{path} is in a bucket, whose service looks after its files: folders of this machine are looked at")
        return
    if not path.exists():
        report.bad(f"{path} is not there")
        return
    found = list(_find_saved(path))
    for saved in found:
        _look_at(saved, report)
    if not found:
        report.bad(f"{path} holds no checkpoint, model or backup that was saved here")


def _find_saved(path: Path) -> Iterator[Path]:
    if path.is_dir() and not _is_saved(path):
        for below in sorted(path.iterdir()):
            yield from _find_saved(below)
    elif _is_saved(path):
        yield path


def _is_saved(path: Path) -> bool:
    if path.is_dir():
        return any((path / name).exists() for name in (_integrity.ABOUT, _integrity.ARRAYS, _ORBAX))
    return path.name.endswith((*_KERAS, _INDEX, f"{_INDEX}.new"))


def _look_at(path: Path, report: Findings) -> None:
    if _UNFINISHED.fullmatch(path.name):
        report.odd(f"{path} was not completed, or not removed completely: the next save removes it")
        return
    try:
        has_digest = _check(path)
    except (DataLossError, NotImplementedError, OSError) as error:
        report.bad(f"{error}")
        return
    if has_digest:
        report.good(f"{path} is whole")
    else:
        report.odd(f"{path} has no digest: an older version, Keras or Orbax alone has written it")


def _check(path: Path) -> bool:
    if (path / _ORBAX).exists():
        return False
    if path.is_dir():
        _checkpoint.must_be_whole(path)
        return _integrity.has_digests(path)
    if path.suffix == _INDEX:
        from tfdist_jax.compat.tensorflow.train._bundle._reader import BundleReader  # Loads the facade.

        BundleReader(path.with_suffix("")).check()
        return True
    from tfdist_jax.compat.tensorflow.keras._saving import _seal  # Loads Keras.

    return _seal.check(path)
