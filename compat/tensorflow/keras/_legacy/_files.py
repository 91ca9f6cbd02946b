"""Models that Keras 2 has written, in JSON, HDF5 and `.keras` files: read with their weights and the state of their optimizer."""

import contextlib
import functools
import json
import logging
from collections.abc import Callable
from typing import Any, NoReturn

import h5py
import keras
import keras._tf_keras.keras as tf_keras
import numpy as np

from tfdist_jax.compat.tensorflow._names._old_forms import tell_old_form
from tfdist_jax.compat.tensorflow.keras._change import Addition, Change, Hook
from tfdist_jax.compat.tensorflow.keras._internals import (
    BaseOptimizer,
    legacy_h5_format,
    masking,
    saving,
    saving_lib,
    saving_utils,
    serialization_lib,
)
from tfdist_jax.compat.tensorflow.keras._legacy._configs import (
    HARD_SIGMOID,
    hard_sigmoid_of_keras_2,
    is_of_keras_2,
    upgrade,
    without_output_names,
)

_log = logging.getLogger("tfdist_jax")

# The names of optimizers' variables in Keras 2, and what Keras 3 calls them.
_SLOTS = {
    "m": "momentum",
    "v": "velocity",
    "vhat": "velocity_hat",
    "rms": "velocity",
    "mg": "average_gradient",
    "accum_grad": "accumulated_grad",
    "accum_var": "accumulated_delta_var",
}

# Metrics that depend on the shapes of targets.
_BY_SHAPES = ("accuracy", "acc", "crossentropy", "ce")


def _upgrading(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def deserialize_keras_object(config: Any, custom_objects: Any = None, safe_mode: bool = True, **kwargs: Any) -> Any:
        if not kwargs and is_of_keras_2(config):
            tell_old_form("a configuration that Keras 2 has written", "`model.save('model.keras')`")
            with keras.saving.custom_object_scope(custom_objects or {}):
                config = upgrade(config)
        return original(config, custom_objects, safe_mode, **kwargs)

    return deserialize_keras_object


def _reading_keras_2(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_model_from_hdf5(
        filepath: Any, custom_objects: Any = None, compile: bool = True, safe_mode: bool = True
    ) -> Any:
        with contextlib.ExitStack() as opened:
            file = filepath if isinstance(filepath, h5py.File) else opened.enter_context(h5py.File(filepath, "r"))
            if _read_text(file, "keras_version").startswith("3."):
                return original(file, custom_objects, compile, safe_mode)
            opened.enter_context(keras.saving.custom_object_scope(custom_objects or {}))
            opened.enter_context(serialization_lib.SafeModeScope(safe_mode))
            return _load(file, compile)

    return load_model_from_hdf5


def _load(file: h5py.File, is_compiled: bool) -> keras.Model:
    """Return the model of a file that Keras 2 has written."""
    if "model_config" not in file.attrs or "model_weights" not in file:
        raise ValueError(
            f"{file.filename} has no configuration and weights of a model. If it holds weights alone, build the model and use "
            "`model.load_weights(file)`."
        )
    tell_old_form("a model in HDF5 that Keras 2 has written", "`model.save('model.keras')`")
    model = serialization_lib.deserialize_keras_object(upgrade(json.loads(_read_text(file, "model_config"))))
    legacy_h5_format.load_weights_from_hdf5_group(file["model_weights"], model)
    training = json.loads(_read_text(file, "training_config") or "null") if is_compiled else None
    if training is None:
        if is_compiled:
            _log.warning("%s does not say how the model was compiled: call `model.compile`.", file.filename)
        return model
    training = without_output_names(upgrade(training), getattr(model, "output_names", ()))
    model.compile(**saving_utils.compile_args_from_training_config(training))
    model.optimizer.build(model.trainable_variables)
    if "optimizer_weights" in file:
        # One that scales losses kept the state of the one inside alone.
        _set_optimizer(getattr(model.optimizer, "inner_optimizer", model.optimizer), file["optimizer_weights"])
    return model


def _reading_by_name(original: Callable[..., Any]) -> Callable[..., Any]:
    """Find the program's own losses and metrics, and leave the others their names, as in Keras 2; the original is not called."""

    @functools.wraps(original)
    def compile_args_from_training_config(training_config: Any, custom_objects: Any = None) -> dict[str, Any]:
        with keras.saving.custom_object_scope(custom_objects or {}):
            losses = upgrade({"loss": training_config.get("loss")})
            metrics = upgrade({name: training_config.get(name) for name in ("metrics", "weighted_metrics")})
            return {
                "optimizer": keras.optimizers.deserialize(training_config["optimizer_config"]),
                "loss_weights": training_config.get("loss_weights"),
                **_make_objects(losses, keras.losses.get),
                **_make_objects(metrics, keras.metrics.get),
            }

    return compile_args_from_training_config


def _make_objects(config: Any, get: Callable[[Any], Any]) -> Any:
    """Return a structure with objects in the place of their configurations, and of the program's own names."""
    if isinstance(config, dict) and config.get("class_name") == "MeanMetricWrapper":
        inner = config["config"]
        function = serialization_lib.deserialize_keras_object(inner["fn"])
        if inner == {"name": function.__name__, "dtype": keras.config.floatx(), "fn": inner["fn"]}:
            return function  # Keras would take the name for the function, also when the model is saved again.
        return keras.metrics.MeanMetricWrapper(**{**inner, "fn": function})
    if isinstance(config, dict) and "class_name" in config:
        return serialization_lib.deserialize_keras_object(config)
    if isinstance(config, dict):
        return {key: _make_objects(one, get) for key, one in config.items()}
    if isinstance(config, list):
        return [_make_objects(one, get) for one in config]
    if config is None or config in _BY_SHAPES:
        return config
    found = get(config)
    return config if keras.saving.get_registered_object(config) is None else found


def _read_text(file: h5py.File, name: str) -> str:
    value = file.attrs.get(name, "")
    return value.decode() if isinstance(value, bytes) else value


def _set_optimizer(optimizer: Any, group: Any) -> None:
    """Give an optimizer the state of one of Keras 2: all of it, or nothing, with a warning."""
    names = legacy_h5_format.load_attributes_from_hdf5_group(group, "weight_names")
    saved = {name: group[name][()] for name in names if not name.endswith("learning_rate:0")}
    values: list[Any] = []
    if len(saved) == 1 or (names and names[0].endswith("iteration:0")):
        values = list(saved.values())
    elif names and names[0].endswith("/iter:0"):
        values = _in_order(optimizer.variables, saved)
    matched = _match(optimizer, values)
    if matched is None:
        _log.warning(
            "The file's state of the optimizer, %s, does not fit that of %s: the optimizer begins anew.",
            names,
            optimizer.name,
        )
        return
    for variable, value in matched:
        variable.assign(value)


def _match(optimizer: Any, values: list[Any]) -> list[tuple[Any, Any]] | None:
    """Return the variables, without the rate, with the saved values that are for them; None if they do not fit."""
    own = [variable for variable in optimizer.variables if not variable.path.endswith("/learning_rate")]
    if len(values) == 1 and not np.any(values[0]):  # Of an optimizer that has not begun.
        own = own[:1]
    if len(own) == 1 and _shapes(optimizer._trainable_variables) == [np.shape(value) for value in values[1:]]:
        values = values[:1]  # SGD without momentum kept its last updates.
    if _shapes(own) != [np.shape(value) for value in values]:
        return None
    return list(zip(own, values, strict=True))


def _shapes(variables: Any) -> list[tuple[int, ...]]:
    return [tuple(variable.shape) for variable in variables]


def _in_order(variables: list[Any], saved: dict[str, Any]) -> list[Any]:
    """Return what Keras until 2.10 saved slot by slot, as "Adam/dense/kernel/m:0", in the order of Keras 3's variables."""
    iterations, *rest = saved.items()
    slots: dict[str, list[Any]] = {}
    for name, value in rest:
        slot = name.rpartition("/")[2].removesuffix(":0")
        slots.setdefault(_SLOTS.get(slot, slot), []).append(value)
    found = (slots[slot] for one in variables[1:] for slot in slots if one.path.endswith(f"_{slot}"))
    return [iterations[1], *(values.pop(0) for values in found if values)]


def _loading_without_rate(original: Callable[..., None]) -> Callable[..., None]:
    """Load the state of Keras 2's optimizer, which did not hold the learning rate."""

    @functools.wraps(original)
    def load_own_variables(self: BaseOptimizer, store: Any) -> None:
        values = [store[str(i)] for i in range(len(store.keys()))]
        matched = None if len(values) == len(self.variables) else _match(self, values)
        if matched is None:
            original(self, store)
            return
        for variable, value in matched:
            variable.assign(value)

    return load_own_variables


def _model_from_config(config: Any, custom_objects: Any = None) -> Any:
    """Return the model, or layer, of a configuration with the name of its class."""
    return serialization_lib.deserialize_keras_object(config, custom_objects=custom_objects)


def _model_from_yaml(yaml_string: Any, custom_objects: Any = None) -> NoReturn:
    """Refuse."""
    raise RuntimeError(
        "`model_from_yaml` ran code that the file brought, and was taken out of Keras. Use `model.to_json()` and `model_from_json`."
    )


keras.saving.get_custom_objects()[HARD_SIGMOID] = hard_sigmoid_of_keras_2
CHANGES: tuple[Change, ...] = (
    Hook(
        serialization_lib,
        "deserialize_keras_object",
        _upgrading,
        "config custom_objects safe_mode",
        "configurations of Keras 2",
        (saving_lib, masking, saving, keras.saving, keras.utils),
    ),
    Hook(
        legacy_h5_format,
        "load_model_from_hdf5",
        _reading_keras_2,
        "filepath custom_objects compile safe_mode",
        "models of Keras 2",
    ),
    Hook(
        saving_utils,
        "compile_args_from_training_config",
        _reading_by_name,
        "training_config custom_objects",
        "losses and metrics of the program's own, by name; not called",
    ),
    Hook(BaseOptimizer, "load_own_variables", _loading_without_rate, "self store", "the state of Keras 2's optimizers"),
    *(Addition(module, "model_from_config", _model_from_config) for module in (keras.models, tf_keras.models)),
    *(Addition(module, "model_from_yaml", _model_from_yaml) for module in (keras.models, tf_keras.models)),
)
