"""`BackupAndRestore` goes on exactly where the training was stopped, also in the middle of an epoch.

Keras's file of weights has no place for where the data was, for random generators, half-done metrics and what other
callbacks have counted. They are written into the same file, under a group of their own, so that they can never belong to
other weights. At an epoch's end other callbacks come first: what they change belongs to the backup. When the training begins
they come last, and see what was restored. A validation that was interrupted is done again, before its epoch ends.
"""

import contextlib
import functools
import json
import os
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np

from tfdist_jax._broadcast import from_first
from tfdist_jax._cluster import meet
from tfdist_jax._placement import local
from tfdist_jax.compat.tensorflow.keras import _position, _preemption, _saving, _seeds
from tfdist_jax.compat.tensorflow.keras._accumulation import accumulates
from tfdist_jax.compat.tensorflow.keras._backup_file import Arrays, read, write
from tfdist_jax.compat.tensorflow.keras._callback_states import (
    best_weights_of,
    set_best_weights,
    set_states,
    states_of,
)
from tfdist_jax.compat.tensorflow.keras._functions import note_training
from tfdist_jax.compat.tensorflow.keras._internals import CallbackList
from tfdist_jax.compat.tensorflow.keras._position import DoneStep, Position
from tfdist_jax.compat.tensorflow.keras._workers import mesh_of, take_from_first, writes_files

_TALLIES = "tallies"
_GUARD = "_tfdist_guard"


def install() -> None:
    """Put the hooks into Keras's callback, and into its list of callbacks."""
    CallbackList.__init__ = _with_backups_last(CallbackList.__init__)
    CallbackList.on_train_begin = _restoring_first(CallbackList.on_train_begin)
    backup: Any = keras.callbacks.BackupAndRestore
    for name, hook in {
        "_load_model": _loading_training,
        "_save_model": _saving_training,
        "on_epoch_begin": _restoring_metrics,
        "on_epoch_end": _noting_end,
        "on_train_batch_begin": _stopping_before,
        "on_train_batch_end": _noting_batch,
        "on_test_begin": _noting_validation,
        "on_test_batch_begin": _stopping_before,
        "on_test_end": _noting_validation_end,
        "on_train_end": _forgetting,
    }.items():
        setattr(backup, name, hook(getattr(backup, name)))


def _is_backup(callback: Any) -> bool:
    return isinstance(callback, keras.callbacks.BackupAndRestore)


def _with_backups_last(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.callbacks.sort(key=_is_backup)
        for callback in filter(_is_backup, self.callbacks):
            callback._tfdist_others = self.callbacks

    return __init__


def _restoring_first(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def on_train_begin(self: Any, logs: Any = None) -> None:
        self.callbacks.sort(key=lambda callback: not _is_backup(callback))
        original(self, logs)
        self.callbacks.sort(key=_is_backup)
        # Here they have just begun to count.
        for callback in filter(_is_backup, self.callbacks):
            set_states(self.callbacks, callback._tfdist_counted)
            set_best_weights(self.callbacks, callback._tfdist_best_weights)

    return on_train_begin


def _loading_training(original: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(original)
    def _load_model(self: Any) -> None:
        about, arrays = _load(self, original)
        self._tfdist_is_epoch_over = self._tfdist_lacks_validation = False
        self._tfdist_validation = self._tfdist_tallies = start = done = None
        self._tfdist_counted = {} if about is None else about["callbacks"]
        self._tfdist_logs = {} if about is None else about["logs"]
        if about is not None:
            start = Position(**about["position"])
            if about["is_epoch_done"] or start.in_epoch:
                done = DoneStep(self._tfdist_logs)
                _position.answer_done_step(self.model)
                note_training(self.model)
            # They change when the epoch begins again.
            tallies, is_over = arrays.pop(_TALLIES), about["is_epoch_over"]
            self._tfdist_tallies = None if is_over else tallies
            self.model.stop_training = about["is_stopped"]
            self.model._initial_epoch = self.params["epochs"] if is_over and about["is_stopped"] else about["epoch"]
            self._last_batch_seen = about["batch"]
            self._tfdist_lacks_validation = about["is_validating"]
        self._tfdist_best_weights = arrays
        is_epoch_done = about is not None and about["is_epoch_done"]
        self._tfdist_reader = _position.follow(start, done, is_epoch_done=is_epoch_done)
        _watch(self)

    return _load_model


def _watch(callback: Any) -> None:
    """Wait for SIGTERM, unless the program does."""
    stop_watching(callback.model)
    if _preemption.is_possible():
        about = functools.partial(_about, callback)
        guard = _preemption.Guard(callback.model, about=about, save=callback._save_model, saving_as=_saving_as)
        # Past Keras's attribute tracking, which is for layers and variables.
        object.__setattr__(callback.model, _GUARD, guard)


# Without the mark of methods that do nothing, which are not called.
_wraps = functools.partial(functools.wraps, updated=())


def _guard_of(callback: Any) -> _preemption.Guard | None:
    return getattr(callback._model, _GUARD, None)


def stop_watching(model: Any, *, is_complete: bool = False) -> None:
    """Let SIGTERM end the process again, if a backup of this model has waited for it."""
    guard = getattr(model, _GUARD, None)
    if guard is not None:
        object.__setattr__(model, _GUARD, None)
        guard.end(is_complete=is_complete)


def _load(callback: Any, original: Callable[[Any], None]) -> tuple[dict[str, Any] | None, Arrays]:
    """Load weights and optimizer, and return what was saved beside them; workers have it from the first of them."""
    model, mesh = callback.model, mesh_of(callback.model)
    about, arrays = None, {}
    if writes_files(model):
        about, arrays = read(callback._weights_path)
        _mend_metadata(callback, about)
        original(callback)
    if mesh is None:
        return about, arrays
    kinds = {name: [(array.shape, str(array.dtype)) for array in group] for name, group in arrays.items()}
    first = meet("the backup", {"about": about, "kinds": kinds, "epoch": model._initial_epoch})[0]
    model._initial_epoch = first["epoch"]
    if model.optimizer is not None and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    take_from_first(model)
    empty = {
        name: [np.zeros(shape, jnp.dtype(kind)) for shape, kind in group] for name, group in first["kinds"].items()
    }
    given = {name: [local(from_first(array, mesh)) for array in group] for name, group in (arrays or empty).items()}
    return first["about"], {name: [np.asarray(array) for array in group] for name, group in given.items()}


# What is saved as the place where the training is, if that is not where it is now.
_given: ContextVar[dict[str, Any] | None] = ContextVar("given", default=None)


@contextlib.contextmanager
def _saving_as(about: dict[str, Any]) -> Iterator[None]:
    token = _given.set(about)
    try:
        yield
    finally:
        _given.reset(token)


def _about(callback: Any, *, is_validating: bool = False) -> dict[str, Any]:
    """Say where the training is; during validation, where it was before."""
    if callback._tfdist_validation is not None:
        return callback._tfdist_validation
    # `callback.model` puts the training's state into the variables. Only gradients that replicas have accumulated need it,
    # in each step: a training that goes on later is to add up the same numbers.
    model = callback.model if accumulates(callback._model.optimizer) else callback._model
    reader, is_over = callback._tfdist_reader, callback._tfdist_is_epoch_over
    is_done = not is_over and (is_validating or reader.is_epoch_done())
    return {
        "epoch": callback._current_epoch,
        "batch": callback._last_batch_seen,
        "logs": callback._tfdist_logs,
        "position": vars(reader.position(is_epoch_over=is_over or is_done)),
        "callbacks": states_of(callback._tfdist_others),
        "is_epoch_done": is_done,
        "is_epoch_over": is_over,
        "is_validating": is_validating,
        "is_stopped": model.stop_training,
    }


def _tallies(model: Any) -> list[Any]:
    """Return the variables that change where an epoch or a validation begins, or in validation: they are put back there."""
    optimizer = model.optimizer.variables if model.optimizer else ()
    rates = [variable for variable in optimizer if variable.name == "learning_rate"]
    return [*model.metrics_variables, *_seeds.seed_states(model), *rates]


def _saving_training(original: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(original)
    def _save_model(self: Any) -> None:
        given = _given.get() or self._tfdist_validation
        if given is None and not self._tfdist_is_epoch_over and self._tfdist_reader.is_epoch_done():
            return  # What other callbacks do at the epoch's end belongs to it: `on_epoch_end` saves.
        if not writes_files(self.model):
            return
        guard = _guard_of(self)
        with contextlib.nullcontext() if guard is None else guard.saving:
            about = dict(given or _about(self))
            tallies = about.pop(_TALLIES, None) or [variable.value for variable in _tallies(self.model)]
            arrays = {_TALLIES: list(map(np.asarray, tallies)), **best_weights_of(self._tfdist_others)}
            with _saving.adding(functools.partial(write, about, arrays)):
                original(self)

    return _save_model


def _stopping_before(original: Callable[..., None]) -> Callable[..., None]:
    @_wraps(original)
    def on_batch_begin(self: Any, batch: int, logs: Any = None) -> None:
        original(self, batch, logs)
        guard = _guard_of(self)
        if guard is not None:
            guard.begin_step()

    return on_batch_begin


def _noting_batch(original: Callable[..., None]) -> Callable[..., None]:
    @_wraps(original)
    def on_train_batch_end(self: Any, batch: int, logs: Any = None) -> None:
        self._tfdist_reader.finish_batch()
        # Without waiting for values.
        self._tfdist_logs = dict(dict.items(logs or {}))
        original(self, batch, logs)
        guard = _guard_of(self)
        if guard is not None:
            guard.mark()

    return on_train_batch_end


def _noting_validation(original: Callable[..., None]) -> Callable[..., None]:
    @_wraps(original)
    def on_test_begin(self: Any, logs: Any = None) -> None:
        original(self, logs)
        self._tfdist_lacks_validation = False
        guard = _guard_of(self)
        if guard is not None:
            # The epoch's batches are done, also if nobody knew their number.
            about = _about(self, is_validating=True)
            # Copies: steps give the memory away.
            self._tfdist_validation = about | {_TALLIES: [jnp.copy(v.value) for v in _tallies(self.model)]}
            guard.mark()

    return on_test_begin


def _noting_validation_end(original: Callable[..., None]) -> Callable[..., None]:
    @_wraps(original)
    def on_test_end(self: Any, logs: Any = None) -> None:
        original(self, logs)
        guard = _guard_of(self)
        if guard is not None:
            guard.mark()

    return on_test_end


def _restoring_metrics(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def on_epoch_begin(self: Any, epoch: int, logs: Any = None) -> None:
        original(self, epoch, logs)
        # Keras would count from 0 after a restart.
        self._current_epoch, self._tfdist_is_epoch_over = epoch, False
        tallies, self._tfdist_tallies = self._tfdist_tallies, None
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
    def on_epoch_end(self: Any, epoch: int, logs: Any = None) -> None:
        self._tfdist_is_epoch_over, self._tfdist_validation = True, None
        if self._tfdist_lacks_validation:
            self._tfdist_lacks_validation = False
            warnings.warn(
                f"Epoch {epoch} was stopped during its validation, and now there are no data to validate with: callbacks see "
                "its end without `val_` values.",
                stacklevel=2,
            )
        original(self, epoch, logs)
        if self.save_freq != "epoch" and self._batches_seen_since_last_saving == 0:
            self._save_model()  # It was due after the last batch.

    return on_epoch_end


def _mend_metadata(callback: Any, about: dict[str, Any] | None) -> None:
    """Let Keras's second file say what the weights' file says: a kill between the two leaves it old, torn or alone."""
    path = Path(callback._training_metadata_path)
    if about is not None:
        path.write_text(json.dumps({"epoch": about["epoch"], "batch": about["batch"]}))
    elif not os.path.exists(callback._weights_path):
        path.unlink(missing_ok=True)


def _forgetting(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def on_train_end(self: Any, logs: Any = None) -> None:
        guard = _guard_of(self)
        if guard is not None:
            # A backup that is complete lets the program come here again.
            guard.begin_step(marked=False)
        stop_watching(self.model, is_complete=True)
        _position.stop_following()
        if writes_files(self.model):
            original(self, logs)

    return on_train_end
