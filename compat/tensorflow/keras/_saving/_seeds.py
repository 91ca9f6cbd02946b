"""The random generators of a model's layers, kept in its files: Keras saves weights only, so dropout would begin anew."""

import functools
import json
import zipfile
from collections.abc import Callable
from typing import Any

import h5py
import keras
import numpy as np

from tfdist_jax.compat.tensorflow.keras._change import Hook
from tfdist_jax.compat.tensorflow.keras._internals import saving_lib
from tfdist_jax.compat.tensorflow.keras._saving._hdf5 import HDF5File

_NAME = "_seeds"
_STATE = "seed_generator_state"


def add_seeds(model: keras.Model, path: str) -> None:
    """Write the generators' states into a complete file of a model or its weights."""
    text = json.dumps([np.asarray(state.value).tolist() for state in seed_states(model)]).encode()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(_NAME, text)
    elif h5py.is_hdf5(path):
        with HDF5File(path, "a") as file:
            file[_NAME] = np.void(text)


def seed_states(model: keras.Model) -> list[Any]:
    """Return the variables of the generators."""
    return [variable for variable in model.variables if variable.name == _STATE]


def _loading_model(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_model(filepath: Any, *args: Any, **kwargs: Any) -> Any:
        model = original(filepath, *args, **kwargs)
        _restore(model, filepath)
        return model

    return load_model


def _loading_weights(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def load_weights_only(model: keras.Model, filepath: Any, *args: Any, **kwargs: Any) -> None:
        original(model, filepath, *args, **kwargs)
        _restore(model, filepath)

    return load_weights_only


def _restore(model: keras.Model, filepath: Any) -> None:
    saved, states = _read(str(filepath)), seed_states(model)
    if len(saved) == len(states):  # Another model's weights can be loaded too.
        for state, value in zip(states, saved, strict=True):
            state.assign(np.asarray(value, np.uint32))


def _read(path: str) -> list[Any]:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return json.loads(archive.read(_NAME)) if _NAME in archive.namelist() else []
    if "://" in path or not h5py.is_hdf5(path):
        return []
    with h5py.File(path) as file:
        saved: Any = file.get(_NAME)
        return [] if saved is None else json.loads(saved[()].tobytes())


_LOADS = "give the seeds of dropout layers back, which Keras does not save"

CHANGES = (
    Hook(saving_lib, "load_model", _loading_model, "filepath", _LOADS),
    Hook(saving_lib, "load_weights_only", _loading_weights, "model filepath", _LOADS),
)
