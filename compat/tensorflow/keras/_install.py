"""Makes the changes in Keras that `_hooks` lists, once for each process, and takes them back."""

import contextlib
import functools
from typing import Any

import keras

from tfdist_jax._thread_state import put_back_after_errors
from tfdist_jax._user_code import see_as_user_file
from tfdist_jax.compat.tensorflow.keras._change import Change, Hook
from tfdist_jax.compat.tensorflow.keras._hooks import CHANGES
from tfdist_jax.compat.tensorflow.keras._internals import legacy_backend
from tfdist_jax.compat.tensorflow.keras._variables._keras_scopes import note_keras_scopes

_ABSENT = object()
# What takes the changes back, the last one first.
_undo = contextlib.ExitStack()


@functools.cache
def install() -> None:
    """Make Keras's variables, optimizers, random numbers and models work with strategies.

    Raises:
        RuntimeError: If Keras runs on another backend than JAX.
    """
    if keras.backend.backend() != "jax":
        raise RuntimeError(
            f"Keras is loaded with the {keras.backend.backend()!r} backend, but strategies need 'jax'. Import tensorflow "
            "(tfdist_jax.compat.tensorflow) before keras, or set KERAS_BACKEND=jax."
        )
    # Written with TensorFlow: it is given this one, and tensors with its shapes and types.
    see_as_user_file(str(legacy_backend.__file__))
    with contextlib.ExitStack() as undo:
        for change in CHANGES:
            _make(change, undo)
        _undo.push(undo.pop_all())
    put_back_after_errors(note_keras_scopes)


def uninstall() -> None:
    """Give Keras back what it had; for objects that it has made since, there is no way back."""
    _undo.close()
    install.cache_clear()


def _make(change: Change, undo: contextlib.ExitStack) -> None:
    owner, name = change.owner, change.name
    if isinstance(change, Hook):
        replacement = change.wrapper(getattr(owner, name))
        for each in (owner, *change.elsewhere):
            _set(each, name, replacement, undo)
    else:
        _set(owner, name, change.value, undo)


def _set(owner: Any, name: str, value: Any, undo: contextlib.ExitStack) -> None:
    undo.callback(_restore, owner, name, vars(owner).get(name, _ABSENT))
    setattr(owner, name, value)


def _restore(owner: Any, name: str, value: Any) -> None:
    if value is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, value)
