"""Checkpoints by step in a bucket of Google Cloud Storage, kept by Orbax's manager.

What a bucket has no way to rename is complete when Orbax has written a file that says so beside it.
"""

import functools
import importlib
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from tfdist_jax._checkpoint import _array_files, _checkpoint
from tfdist_jax._checkpoint._store import Store

if TYPE_CHECKING:
    import orbax.checkpoint as ocp
    from etils import epath

_log = logging.getLogger("tfdist_jax")

_PREFIX = "step"
_SCHEME = "gs:"

PYTHON_CRASHES = (3, 12, 0) <= sys.version_info[:3] < (3, 12, 2)
"""Whether this Python's garbage collection takes parts of a BytesIO apart that are still used."""


def is_bucket(folder: str | Path) -> bool:
    """Tell whether a folder is in a bucket that can be saved to."""
    return str(folder).startswith(f"{_SCHEME}/")


def _wait_for_writers(manager: "ocp.CheckpointManager | None") -> None:
    """Wait for the threads that still write when saving has failed: the next manager removes what they have not completed.

    `wait_until_finished` leaves out the arrays' writer where the metadata's has failed, and Orbax has no other call for it.
    """
    try:
        if manager is not None:
            manager._wait_for_checkpointers()  # noqa: SLF001 - there is no public call.
    except Exception:
        _log.warning("Another part of the checkpoint that could not be saved:", exc_info=True)


@final
class BucketStore(Store):
    """Folders `step_N` in a bucket."""

    def __init__(self, folder: str | Path, max_to_keep: int | None) -> None:
        """Keep checkpoints under a URL, gs://bucket/path.

        Raises:
            ValueError: If it names no bucket.
            ImportError: If the libraries that reach a bucket are not installed.
            NotImplementedError: If Python crashes in them.
        """
        super().__init__(max_to_keep)
        if PYTHON_CRASHES:
            raise NotImplementedError(
                "Python 3.12.0 and 3.12.1 crash in the libraries that reach a bucket, and cannot save while they end "
                "(python/cpython issues 111049 and 113964). Use another Python, or mount the bucket."
            )
        try:
            importlib.import_module("gcsfs")
            importlib.import_module("google.cloud.storage")
        except ImportError as error:
            raise ImportError(f"Checkpoints in {folder} need {error.name}: `pip install 'tfdist-jax[gcs]'`.") from error
        from etils import epath
        from etils.epath.backend import fsspec_backend

        # One slash is left where `pathlib` has taken the URL for a path.
        path = str(folder).removeprefix(_SCHEME).strip("/")
        if not path:
            raise ValueError(f"Checkpoints are kept in gs://bucket/path, got {folder}.")
        self._folder = epath.Path(f"{_SCHEME}//{path}")
        self._bucket = epath.Path(f"{_SCHEME}//{path.partition('/')[0]}")
        # A listing that gcsfs has kept knows nothing of what other processes, and TensorStore in this one, have written since.
        files = fsspec_backend.fs(self._folder)
        files.dircache.use_listings_cache = False
        files.invalidate_cache()

    def __str__(self) -> str:
        return str(self._folder)

    def prepare(self) -> int | None:
        """Do as `Store` says.

        Raises:
            FileNotFoundError: If there is no such bucket.
        """
        self.together(self._require_bucket)
        self.together(lambda: self._manager)
        newest: int | None = self.exchange(max(self.steps(), default=None))[0]
        return newest

    def _require_bucket(self) -> None:
        if not self._bucket.exists():
            raise FileNotFoundError(
                f"There is no bucket {self._bucket}, or this program's credentials do not let it look. Make it first."
            )

    def begin_saving(
        self, step: int, arrays: Mapping[str, Any], about: Mapping[str, Any], own: Any
    ) -> Callable[[], None]:
        """Do as `Store` says; what was saved as this step is removed first."""
        import orbax.checkpoint as ocp

        by_number, text = _checkpoint.number_arrays(arrays, about)
        text[_checkpoint.PROCESSES] = self.exchange(own)
        tree = _array_files.as_orbax_takes_them(by_number)
        items = ocp.args.Composite(
            **{_checkpoint.ARRAYS: ocp.args.PyTreeSave(tree), _checkpoint.ABOUT: ocp.args.JsonSave(text)}
        )

        def begin() -> Callable[[], None]:
            manager = self._manager
            if step in manager.all_steps():
                manager.delete(step)
            manager.save(step, args=items, force=True)
            return manager.wait_until_finished

        wait = _checkpoint.defer_errors(begin)

        def finish() -> None:
            try:
                self.together(wait)
            except BaseException:
                manager = vars(self).pop("_manager", None)  # It would tell of this failure again.
                _wait_for_writers(manager)
                raise

        return finish

    def steps(self) -> list[int]:
        """Do as `Store` says."""
        from orbax.checkpoint import path

        names = path.step.standard_name_format(step_prefix=_PREFIX)
        try:
            return sorted(found.step for found in names.find_all(self._folder))
        except FileNotFoundError:  # Its last object was removed after Orbax had looked whether there is one.
            return []

    def path(self, step: int) -> "epath.Path":
        """Do as `Store` says."""
        return self._folder / f"{_PREFIX}_{step}"

    def delete(self, steps: Sequence[int]) -> None:
        """Do as `Store` says."""
        for step in steps:
            self.together(lambda step=step: self._manager.delete(step))

    def close(self) -> None:
        """Let Orbax's manager go; the next save makes a new one."""
        if "_manager" in vars(self):
            self._manager.close()
            del self._manager

    @functools.cached_property
    def _manager(self) -> "ocp.CheckpointManager":
        """Orbax's manager, of which there is one while this program saves; it removes what earlier runs have left unfinished."""
        import orbax.checkpoint as ocp

        registry = ocp.handlers.DefaultCheckpointHandlerRegistry()
        about = ocp.JsonCheckpointHandler(filename=_checkpoint.ABOUT_FILE)
        registry.add(_checkpoint.ABOUT, ocp.args.JsonSave, about)
        options = ocp.CheckpointManagerOptions(
            max_to_keep=self.max_to_keep, step_prefix=_PREFIX, cleanup_tmp_directories=True
        )
        return ocp.CheckpointManager(self._folder, options=options, handler_registry=registry)
