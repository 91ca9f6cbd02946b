"""`BackupAndRestore` goes on exactly where the training was stopped, also in the middle of an epoch.

Keras's file of weights has no place for where the data was, for random generators, half-done metrics and what other
callbacks have counted. They are written into the same file, under a group of their own, so that they can never belong to
other weights. At an epoch's end other callbacks come first: what they change belongs to the backup. When the training begins
they come last, and see what was restored. A validation that was interrupted is done again, before its epoch ends.
"""

import contextlib
import functools
import json
import logging
import os
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np

from tfdist_jax._cluster import allgather_object
from tfdist_jax._multiprocess._broadcast import broadcast_from_first
from tfdist_jax._sharding._placement import local
from tfdist_jax._thread_state import having
from tfdist_jax.compat.tensorflow._platform._errors import DataLossError
from tfdist_jax.compat.tensorflow.keras._change import Hook
from tfdist_jax.compat.tensorflow.keras._internals import Backup, CallbackList, JAXTrainer
from tfdist_jax.compat.tensorflow.keras._resume import _position, _preemption
from tfdist_jax.compat.tensorflow.keras._resume._backup_file import Arrays, read, write
from tfdist_jax.compat.tensorflow.keras._resume._callback_states import (
    best_weights_of,
    set_best_weights,
    set_states,
    states_of,
)
from tfdist_jax.compat.tensorflow.keras._resume._position import DoneStep, Position
from tfdist_jax.compat.tensorflow.keras._resume._progress import Progress, begin_progress, progress_of
from tfdist_jax.compat.tensorflow.keras._saving import _saving, _seeds
from tfdist_jax.compat.tensorflow.keras._saving._seal import DamagedFileError, check
from tfdist_jax.compat.tensorflow.keras._training._accumulation import accumulates
from tfdist_jax.compat.tensorflow.keras._training._step_function import note_training
from tfdist_jax.compat.tensorflow.keras._training._workers import mesh_of, strategy_of, take_from_first, writes_files
from tfdist_jax.compat.tensorflow.train._damage import SKIPS_DAMAGED, skips_damaged

_log = logging.getLogger("tfdist_jax")
_TALLIES = "tallies"
_GUARD = "_tfdist_guard"


def _is_backup(callback: keras.callbacks.Callback) -> bool:
    return isinstance(callback, keras.callbacks.BackupAndRestore)


def _with_backups_last(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: CallbackList, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.callbacks.sort(key=_is_backup)
        for callback in filter(_is_backup, self.callbacks):
            progress_of(callback).callbacks = self.callbacks

    return __init__


def _restoring_first(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def on_train_begin(self: CallbackList, logs: Any = None) -> None:
        self.callbacks.sort(key=lambda callback: not _is_backup(callback))
        original(self, logs)
        self.callbacks.sort(key=_is_backup)
        # Here they have just begun to count.
        for callback in filter(_is_backup, self.callbacks):
            progress = progress_of(callback)
            set_states(self.callbacks, progress.counted)
            set_best_weights(self.callbacks, progress.best_weights)

    return on_train_begin


def _loading_training(original: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(original)
    def _load_model(self: Backup) -> None:
        about, arrays = _load(self, original)
        progress = begin_progress(self, progress_of(self).callbacks)
        if about is None:
            progress.reader = _position.follow(None)
        else:
            _give_back(self, progress, about, arrays)
        _watch(self)

    return _load_model


def _give_back(callback: Backup, progress: Progress, about: dict[str, Any], arrays: Arrays) -> None:
    """Put the training where the backup was made."""
    model, is_over = callback.model, about["is_epoch_over"]
    compression = getattr(strategy_of(model), "compression", None)
    if compression is not None and compression.has_memory:
        _log.warning(
            "Gradients travel as %s, but a backup has nothing of what replicas had still to send: they begin with nothing. "
            "`tf.train.Checkpoint(optimizer=...)` has it.",
            compression,
        )
    start, done = Position(**about["position"]), None
    if about["is_epoch_done"] or start.in_epoch:
        done = DoneStep(about["logs"])
        _position.answer_done_step(model)
        note_training(model)
    # They change when the epoch begins again.
    tallies = arrays.pop(_TALLIES)
    progress.tallies = None if is_over else tallies
    model.stop_training = about["is_stopped"]
    model._initial_epoch = callback.params["epochs"] if is_over and about["is_stopped"] else about["epoch"]
    callback._last_batch_seen = about["batch"]
    progress.lacks_validation = about["is_validating"]
    progress.logs, progress.counted, progress.best_weights = about["logs"], about["callbacks"], arrays
    progress.reader = _position.follow(start, done, is_epoch_done=about["is_epoch_done"])


def _watch(callback: Backup) -> None:
    """Wait for SIGTERM, unless the program does."""
    _stop_watching(callback.model)
    if _preemption.is_possible():
        about = functools.partial(_about, callback)
        guard = _preemption.Guard(callback.model, about=about, save=callback._save_model, saving_as=_saving_as)
        # Past Keras's attribute tracking, which is for layers and variables.
        object.__setattr__(callback.model, _GUARD, guard)


# Without the mark of methods that do nothing, which are not called.
_wraps = functools.partial(functools.wraps, updated=())


def _guard_of(callback: Backup) -> _preemption.Guard | None:
    return getattr(callback._model, _GUARD, None)


def _stop_watching(model: keras.Model, *, is_complete: bool = False) -> None:
    """Let SIGTERM end the process again, if a backup of this model has waited for it."""
    guard = getattr(model, _GUARD, None)
    if guard is not None:
        object.__setattr__(model, _GUARD, None)
        guard.end(is_complete=is_complete)


def _load(callback: Backup, original: Callable[[Any], None]) -> tuple[dict[str, Any] | None, Arrays]:
    """Load weights and optimizer, and return what was saved beside them; workers have it from the first of them."""
    model, mesh = callback.model, mesh_of(callback.model)
    about, arrays = None, {}
    if writes_files(model):
        _check(callback)
        about, arrays = read(callback._weights_path)
        _mend_metadata(callback, about)
        original(callback)
    if mesh is None:
        return about, arrays
    kinds = {name: [(array.shape, str(array.dtype)) for array in group] for name, group in arrays.items()}
    first = allgather_object("the backup", {"about": about, "kinds": kinds, "epoch": model._initial_epoch})[0]
    model._initial_epoch = first["epoch"]
    if model.optimizer is not None and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    take_from_first(model, mesh)
    empty = {
        name: [np.zeros(shape, jnp.dtype(kind)) for shape, kind in group] for name, group in first["kinds"].items()
    }
    given = {
        name: [local(broadcast_from_first(array, mesh)) for array in group] for name, group in (arrays or empty).items()
    }
    return first["about"], {name: [np.asarray(array) for array in group] for name, group in given.items()}


def _check(callback: Backup) -> None:
    """Refuse a damaged backup; with the error that Keras's `BackupAndRestore` goes back to the one before on, if it is kept."""
    path, before = Path(callback._weights_path), Path(callback._prev_weights_path)
    try:
        if path.exists():
            check(path)
        elif before.exists():
            raise DamagedFileError(f"{path} is gone.")
    except DamagedFileError as error:
        if not before.exists():
            raise DamagedFileError(
                f"{error} Remove it to begin anew. `BackupAndRestore(double_checkpoint=True)` keeps the backup before, too."
            ) from error
        if not skips_damaged():
            raise DataLossError(None, None, f"{error} {SKIPS_DAMAGED}=0 says not to go back to {before}.") from error
        _log.warning("%s Going back to %s.", error, before)
        raise


# What is saved as the place where the training is, if that is not where it is now.
_given: ContextVar[dict[str, Any] | None] = ContextVar("given", default=None)


def _saving_as(about: dict[str, Any]) -> AbstractContextManager[None]:
    return having(_given, about)


def _about(callback: Backup, *, is_validating: bool = False) -> dict[str, Any]:
    """Say where the training is; during validation, where it was before."""
    progress = progress_of(callback)
    if progress.validation is not None:
        return progress.validation
    # `callback.model` puts the training's state into the variables. Only gradients that replicas have accumulated need it,
    # in each step: a training that goes on later is to add up the same numbers.
    model = callback.model if accumulates(callback._model.optimizer) else callback._model
    reader, is_over = progress.reader, progress.is_epoch_over
    is_done = not is_over and (is_validating or reader.is_epoch_done())
    return {
        "epoch": callback._current_epoch,
        "batch": callback._last_batch_seen,
        "logs": progress.logs,
        "position": vars(reader.position(is_epoch_over=is_over or is_done)),
        "callbacks": states_of(progress.callbacks),
        "is_epoch_done": is_done,
        "is_epoch_over": is_over,
        "is_validating": is_validating,
        "is_stopped": model.stop_training,
    }


def _tallies(model: keras.Model) -> list[Any]:
    """Return the variables that change where an epoch or a validation begins, or in validation: they are put back there."""
    optimizer = model.optimizer.variables if model.optimizer else ()
    rates = [variable for variable in optimizer if variable.name == "learning_rate"]
    return [*model.metrics_variables, *_seeds.seed_states(model), *rates]


def _saving_training(original: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(original)
    def _save_model(self: Backup) -> None:
        progress = progress_of(self)
        given = _given.get() or progress.validation
        if given is None and not progress.is_epoch_over and progress.reader.is_epoch_done():
            return  # What other callbacks do at the epoch's end belongs to it: `on_epoch_end` saves.
        if not writes_files(self.model):
            return
        guard = _guard_of(self)
        with contextlib.nullcontext() if guard is None else guard.saving:
            about = dict(given or _about(self))
            tallies = about.pop(_TALLIES, None) or [variable.value for variable in _tallies(self.model)]
            arrays = {_TALLIES: list(map(np.asarray, tallies)), **best_weights_of(progress.callbacks)}
            with _saving.adding(functools.partial(write, about, arrays)):
                original(self)

    return _save_model


def _stopping_before(original: Callable[..., None]) -> Callable[..., None]:
    @_wraps(original)
    def on_batch_begin(self: Backup, batch: int, logs: Any = None) -> None:
        original(self, batch, logs)
        guard = _guard_of(self)
        if guard is not None:
            guard.begin_step()

    return on_batch_begin


def _noting_batch(original: Callable[..., None]) -> Callable[..., None]:
    @_wraps(original)
    def on_train_batch_end(self: Backup, batch: int, logs: Any = None) -> None:
        progress = progress_of(self)
        progress.reader.finish_batch()
        # Without waiting for values.
        progress.logs = dict(dict.items(logs or {}))
        original(self, batch, logs)
        guard = _guard_of(self)
        if guard is not None:
            guard.mark()

    return on_train_batch_end


def _noting_validation(original: Callable[..., None]) -> Callable[..., None]:
    @_wraps(original)
    def on_test_begin(self: Backup, logs: Any = None) -> None:
        original(self, logs)
        progress = progress_of(self)
        progress.lacks_validation = False
        guard = _guard_of(self)
        if guard is not None:
            # The epoch's batches are done, also if nobody knew their number.
            about = _about(self, is_validating=True)
            # Copies: steps give the memory away.
            progress.validation = about | {_TALLIES: [jnp.copy(v.value) for v in _tallies(self.model)]}
            guard.mark()

    return on_test_begin


def _noting_validation_end(original: Callable[..., None]) -> Callable[..., None]:
    @_wraps(original)
    def on_test_end(self: Backup, logs: Any = None) -> None:
        original(self, logs)
        guard = _guard_of(self)
        if guard is not None:
            guard.mark()

    return on_test_end


def _restoring_metrics(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def on_epoch_begin(self: Backup, epoch: int, logs: Any = None) -> None:
        original(self, epoch, logs)
        progress = progress_of(self)
        # Keras would count from 0 after a restart.
        self._current_epoch, progress.is_epoch_over = epoch, False
        tallies, progress.tallies = progress.tallies, None
        if tallies is not None:
            for variable, value in zip(_tallies(self.model), tallies, strict=True):
                variable.assign(value)
        guard = _guard_of(self)
        if guard is not None:
            guard.begin_epoch()
            if tallies is not None:
                guard.mark()

    return on_epoch_begin


def _noting_end(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def on_epoch_end(self: Backup, epoch: int, logs: Any = None) -> None:
        progress = progress_of(self)
        progress.is_epoch_over, progress.validation = True, None
        if progress.lacks_validation:
            progress.lacks_validation = False
            warnings.warn(
                f"Epoch {epoch} was stopped during its validation, and now there are no data to validate with: callbacks see "
                "its end without `val_` values.",
                stacklevel=2,
            )
        original(self, epoch, logs)
        if self.save_freq != "epoch" and self._batches_seen_since_last_saving == 0:
            self._save_model()  # It was due after the last batch.

    return on_epoch_end


def _mend_metadata(callback: Backup, about: dict[str, Any] | None) -> None:
    """Let Keras's second file say what the weights' file says: a kill between the two leaves it old, torn or alone."""
    path = Path(callback._training_metadata_path)
    if about is not None:
        path.write_text(json.dumps({"epoch": about["epoch"], "batch": about["batch"]}))
    elif not os.path.exists(callback._weights_path):
        path.unlink(missing_ok=True)


def _forgetting(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def on_train_end(self: Backup, logs: Any = None) -> None:
        guard = _guard_of(self)
        if guard is not None:
            # A backup that is complete lets the program come here again.
            guard.begin_step(marked=False)
        _stop_watching(self.model, is_complete=True)
        _position.stop_following()
        if writes_files(self.model):
            original(self, logs)

    return on_train_end


def _leaving_nothing_behind(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let SIGTERM end the process again, and the next `fit` begin as it says, also when this one fails."""

    @functools.wraps(original)
    def fit(self: keras.Model, *args: Any, **kwargs: Any) -> Any:
        note_training(self, has_begun=False)
        try:
            with _position.following_again():
                return original(self, *args, **kwargs)
        finally:
            _stop_watching(self)
            self._initial_epoch = None

    return fit


def _of_backup(name: str, wrapper: Callable[[Any], Any], parameters: str, reason: str) -> Hook:
    return Hook(keras.callbacks.BackupAndRestore, name, wrapper, parameters, reason)


_PREEMPTED = "after SIGTERM, save and leave before the next batch"

CHANGES = (
    Hook(
        CallbackList, "__init__", _with_backups_last, "self callbacks", "backups are made when other callbacks are done"
    ),
    Hook(
        CallbackList,
        "on_train_begin",
        _restoring_first,
        "self logs",
        "other callbacks see what was restored, and go on counting",
    ),
    _of_backup("_load_model", _loading_training, "self", "go on in the middle of an epoch"),
    _of_backup("_save_model", _saving_training, "self", "data's position and random state in the same file"),
    _of_backup("on_epoch_begin", _restoring_metrics, "self epoch logs", "half-done metrics go on"),
    _of_backup("on_epoch_end", _noting_end, "self epoch logs", "an epoch's end is noted"),
    _of_backup("on_train_batch_begin", _stopping_before, "self batch logs", _PREEMPTED),
    _of_backup("on_train_batch_end", _noting_batch, "self batch logs", "a batch is done"),
    _of_backup("on_test_begin", _noting_validation, "self logs", "validation is done again from here"),
    _of_backup("on_test_batch_begin", _stopping_before, "self batch logs", _PREEMPTED),
    _of_backup("on_test_end", _noting_validation_end, "self logs", "what steps have changed is settled"),
    _of_backup("on_train_end", _forgetting, "self logs", "later trainings are not followed"),
    # Outside of what trainers do to `fit`.
    Hook(
        JAXTrainer,
        "fit",
        _leaving_nothing_behind,
        "self x y",
        "the next one begins as it says, also when this one fails",
    ),
)
