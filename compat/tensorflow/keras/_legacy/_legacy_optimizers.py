"""`tf.keras.optimizers.legacy`: TensorFlow 2's optimizers, with `decay`; and `lr` as argument and attribute of all optimizers."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import keras._tf_keras.keras as tf_keras

from tfdist_jax.compat.tensorflow._names._old_forms import tell_old_form
from tfdist_jax.compat.tensorflow.keras._change import Addition, Hook
from tfdist_jax.compat.tensorflow.keras._internals import BaseOptimizer
from tfdist_jax.compat.tensorflow.keras._legacy import _legacy_formulas

NAMES = ("Adadelta", "Adagrad", "Adam", "Adamax", "Ftrl", "Nadam", "RMSprop", "SGD")


def _taking_lr(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, learning_rate: Any, *args: Any, **kwargs: Any) -> None:
        rate, decay = kwargs.pop("lr", None), kwargs.pop("decay", None)
        kwargs.pop("jit_compile", None)  # XLA compiles all programs.
        if rate is not None:
            tell_old_form("`lr=` of an optimizer", "`learning_rate=`")
        original(self, learning_rate if rate is None else rate, *args, **kwargs)
        if decay:
            tell_old_form("`decay=` of an optimizer", "`keras.optimizers.schedules.InverseTimeDecay`")
            object.__setattr__(self, "_decay", decay)

    return __init__


def _legacy(name: str) -> Any:
    """Return TensorFlow 2's optimizer; in all but Nadam the rate falls with `decay`, as 1 / (1 + decay * step)."""
    base = getattr(_legacy_formulas, name, None) or getattr(keras.optimizers, name)
    return _registered(base, {}) if name == "Nadam" else _registered(base, _decaying(base))


def _decaying(base: Any) -> dict[str, Any]:

    def __init__(self: Any, *args: Any, decay: float = 0.0, **kwargs: Any) -> None:
        base.__init__(self, *args, **kwargs)
        self.decay = decay

    def _backend_update_step(self: Any, grads: Any, trainable_variables: Any, learning_rate: Any) -> None:
        # In the step alone: `learning_rate` goes on giving the variable, for schedules and `K.set_value`.
        if self.decay:
            learning_rate = learning_rate / (1.0 + self.decay * keras.ops.cast(self.iterations, "float32"))
        base._backend_update_step(self, grads, trainable_variables, learning_rate)

    def get_config(self: Any) -> dict[str, Any]:
        return {**base.get_config(self), "decay": self.decay}

    return {
        "__init__": __init__,
        "_backend_update_step": _backend_update_step,
        "get_config": get_config,
    }


def _registered(base: Any, members: dict[str, Any]) -> Any:
    members = {**members, "__module__": __name__, "__doc__": f"TensorFlow 2's `{base.__name__}`."}
    return keras.saving.register_keras_serializable("tensorflow.legacy")(type(base.__name__, (base,), members))


globals().update({name: _legacy(name) for name in NAMES})


def _taking_legacy(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def get(identifier: Any, **kwargs: Any) -> Any:
        """Return an optimizer, by name one of TensorFlow 2's if `use_legacy_optimizer` is true."""
        is_legacy = kwargs.pop("use_legacy_optimizer", False)
        kwargs.pop("experimental", None)
        known = {name.lower(): globals()[name] for name in NAMES}
        if is_legacy and isinstance(identifier, str) and identifier.lower() in known:
            return known[identifier.lower()]()
        return original(identifier, **kwargs)

    return get


CHANGES = (
    Hook(keras.optimizers, "get", _taking_legacy, "identifier", "`use_legacy_optimizer=`", (tf_keras.optimizers,)),
    Hook(BaseOptimizer, "__init__", _taking_lr, "self learning_rate", "`lr=` is the learning rate; `decay=` counts"),
    Addition(
        BaseOptimizer,
        "lr",
        property(lambda self: self.learning_rate, lambda self, value: setattr(self, "learning_rate", value)),
    ),
)
