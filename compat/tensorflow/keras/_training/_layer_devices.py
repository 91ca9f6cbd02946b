"""Layers on devices: one that is made in the scope of `tf.device` keeps its weights and computes there, wherever it is called.

Where a model says nothing of devices when it is called, TensorFlow would compute on the first one, and a model in parts on several
devices would do so in name alone. A scope around the call itself counts more, as in TensorFlow; and layers that are made on the
processor compute on an accelerator if there is one, where only their weights lie apart. What optimizers keep of a variable lies
beside it, and its update is computed there.
"""

import functools
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import keras

from tfdist_jax._device_scope import Device, current_device, on_device
from tfdist_jax._internals import computing_now, default_device
from tfdist_jax._stateful import _state
from tfdist_jax._stateful._storage import PLAIN, storage_on
from tfdist_jax._thread_state import having
from tfdist_jax.compat.tensorflow._platform._context import binding_strategy
from tfdist_jax.compat.tensorflow.keras._change import Addition, Hook
from tfdist_jax.compat.tensorflow.keras._internals import BaseOptimizer, Operation

_STORAGE = "device_storage"

# The device whose scope a layer's call, and not the program, has entered.
_entered: ContextVar[Device | None] = ContextVar("layer_device", default=None)


def _noting_device(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(self: Operation, *args: Any, **kwargs: Any) -> None:
        if current_device() is not None:
            # A storage: unlike a device, it can be copied and pickled with the other attributes. Keras's own copies are layers made anew,
            # of the device of the scope in which they are made.
            object.__setattr__(self, _STORAGE, storage_on(current_device()))
        original(self, *args, **kwargs)

    return init


def _calling_on_device(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(self: Operation, *args: Any, **kwargs: Any) -> Any:
        device = getattr(self, _STORAGE).device
        if device is None or not _decides(device):
            return original(self, *args, **kwargs)
        with on_device(device), having(_entered, device):
            return original(self, *args, **kwargs)

    return call


def _decides(device: Device) -> bool:
    """Whether a layer of this device, called now, computes there."""
    present = current_device()
    if present is device or (present is not None and present is not _entered.get()) or binding_strategy() is not None:
        return False
    usual = default_device()
    return device.platform != "cpu" or usual is None or usual.platform == "cpu"


def _with_weights_on_device(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def add_weight(self: keras.Layer, *args: Any, **kwargs: Any) -> Any:
        device = getattr(self, _STORAGE).device
        device = device if current_device() in (None, _entered.get()) else current_device()
        if device is None or binding_strategy() is not None:
            return original(self, *args, **kwargs)
        with on_device(device):
            variable = original(self, *args, **kwargs)
        if variable.stored is None:
            variable.storage = storage_on(device)  # It gets its value later, outside of the scope.
        return variable

    return add_weight


def _beside_variable(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def add_variable_from_reference(
        self: BaseOptimizer, reference_variable: Any, name: str | None = None, initializer: Any = "zeros"
    ) -> Any:
        with on_device(_device_of(reference_variable)):
            variable = original(self, reference_variable, name, initializer)
        with _state.entering(None), computing_now():
            getattr(reference_variable, "storage", PLAIN).keep_like(variable, reference_variable)
        return variable

    return add_variable_from_reference


def _updating_on_devices(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def update(
        self: BaseOptimizer, grads: Sequence[Any], trainable_variables: Sequence[Any], learning_rate: Any
    ) -> None:
        if not any(map(_device_of, trainable_variables)):
            original(self, grads, trainable_variables, learning_rate)
            return
        for gradient, variable in zip(grads, trainable_variables, strict=True):
            with on_device(_device_of(variable)):
                original(self, [gradient], [variable], learning_rate)

    return update


def _device_of(variable: Any) -> Device | None:
    """Return the device that a variable stays on, if there is one."""
    return getattr(variable, "storage", PLAIN).device


CHANGES = (
    Addition(Operation, _STORAGE, PLAIN),
    Hook(Operation, "__init__", _noting_device, "self name", "layers stay on the device of `tf.device`"),
    Hook(Operation, "__call__", _calling_on_device, "self", "the same"),
    Hook(keras.Layer, "__call__", _calling_on_device, "self", "the same, while they are built too"),
    Hook(keras.Layer, "add_weight", _with_weights_on_device, "self", "the same of their weights"),
    Hook(
        BaseOptimizer,
        "add_variable_from_reference",
        _beside_variable,
        "self reference_variable name initializer",
        "what is kept of a variable lies beside it",
    ),
    Hook(
        BaseOptimizer,
        "_backend_update_step",
        _updating_on_devices,
        "self grads trainable_variables learning_rate",
        "a variable is updated on its device",
    ),
)
