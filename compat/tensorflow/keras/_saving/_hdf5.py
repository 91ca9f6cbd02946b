"""HDF5 files on disks that may be full: HDF5 itself can end the process when it cannot write."""

import functools
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import h5py

from tfdist_jax.compat.tensorflow.keras._change import Hook
from tfdist_jax.compat.tensorflow.keras._internals import legacy_h5_format, saving_lib, saving_utils


@final
class _Disk:
    """A file that goes on as if it had written what the disk does not take, and keeps the first failure for later."""

    def __init__(self, path: str | os.PathLike[str], mode: str) -> None:
        self._file = io.FileIO(path, {"w": "w+", "a": "r+"}[mode])
        self.failure: OSError | None = None
        self.read, self.readinto = self._file.read, self._file.readinto
        self.seek, self.tell, self.flush = self._file.seek, self._file.tell, self._file.flush

    def write(self, data: Any) -> int:
        with memoryview(data).cast("B") as left:
            done = 0
            while done < len(left) and self.failure is None:
                try:
                    done += self._file.write(left[done:])
                except OSError as failure:
                    self.failure = failure
            return len(left)

    def truncate(self, size: int | None = None) -> int:
        try:
            return self._file.truncate(size)
        except OSError as failure:
            self.failure = self.failure or failure
            return size or 0

    def close(self) -> None:
        self._file.close()


class HDF5File(h5py.File):
    """A file that is written as far as the disk takes it; `close` says what went wrong."""

    def __init__(self, path: str | os.PathLike[str], mode: str) -> None:
        """Open a file to write it anew ("w"), or to add to one that is there ("a").

        Raises:
            OSError: If it cannot be opened.
        """
        self._disk = _Disk(path, mode)
        super().__init__(self._disk, mode)

    def close(self) -> None:
        """Write the rest.

        Raises:
            OSError: If something was not written.
        """
        try:
            super().close()
        finally:  # HDF5 may find what was not written.
            self._disk.close()
            failure, self._disk.failure = self._disk.failure, None
            if failure is not None:
                raise failure


def _writing_to_full_disks(original: Callable[..., h5py.File]) -> Callable[..., h5py.File]:
    @functools.wraps(original)
    def _get_h5_file(self: Any, path_or_io: Any, mode: str | None = None) -> h5py.File:
        if (mode or self.mode) == "w" and isinstance(path_or_io, Path) and not self.archive:
            return HDF5File(path_or_io, "w")
        return original(self, path_or_io, mode)

    return _get_h5_file


def _closing_with_an_error(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def save_model_to_hdf5(model: Any, filepath: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(filepath, h5py.File):
            return original(model, filepath, *args, **kwargs)
        with HDF5File(filepath, "w") as file:
            return original(model, file, *args, **kwargs)

    return save_model_to_hdf5


def _building_optimizer(original: Callable[..., None]) -> Callable[..., None]:
    """Build the optimizer of a loaded model for all variables that it trains: Keras takes those of the model outside of its layers."""

    @functools.wraps(original)
    def try_build_compiled_arguments(model: Any) -> None:
        if model.optimizer is not None:
            model.optimizer.build(model.trainable_variables)
        original(model)

    return try_build_compiled_arguments


_REASON = "HDF5 ends the process when the disk is full"

CHANGES = (
    Hook(
        saving_lib.H5IOStore,
        "_get_h5_file",
        _writing_to_full_disks,
        "self path_or_io mode",
        _REASON,
    ),
    Hook(
        legacy_h5_format,
        "save_model_to_hdf5",
        _closing_with_an_error,
        "model filepath overwrite include_optimizer",
        _REASON,
    ),
    Hook(
        saving_utils,
        "try_build_compiled_arguments",
        _building_optimizer,
        "model",
        "called for models in HDF5 alone, before their optimizer's variables are set",
    ),
)
