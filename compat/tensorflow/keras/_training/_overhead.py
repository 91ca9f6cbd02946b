"""What Keras need not do: trace derivatives anew, search state for layers, tell logs to nobody, load TensorFlow to ask what is its."""

import functools
from collections.abc import Callable
from typing import Any

import jax

from tfdist_jax.compat.tensorflow.keras._change import Hook, instead
from tfdist_jax.compat.tensorflow.keras._internals import (
    CallbackList,
    JAXTrainer,
    backend,
    is_default,
    serialization_lib,
)
from tfdist_jax.compat.tensorflow.keras._real_tensorflow import TensorFlowIfLoaded

_KINDS = ("train", "test", "predict")


def _set_attribute(self: JAXTrainer, name: str, value: Any) -> None:
    if name == "_jax_state":  # Keras would look for layers in it, at each step.
        self.__dict__[name] = value
    else:
        super(JAXTrainer, self).__setattr__(name, value)


def _only_if_heard(name: str, original: Callable[..., None]) -> Callable[..., None]:
    """Skip a batch's event if no callback has a method for it: telling it would wait for the step's logs.

    Steps that another process has done already have no number, and are not told.
    """
    names = (name, name.replace("_train", "")) if "_train" in name else (name,)

    @functools.wraps(original)
    def event(self: CallbackList, batch: int | None, logs: Any = None) -> None:
        if batch is not None and any(
            not is_default(getattr(callback, n)) for callback in self.callbacks for n in names
        ):
            original(self, batch, logs)

    return event


def _as_program(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Call a function as a program, which an eager tape keeps; one with a derivative of its own it would trace each time."""
    program = jax.jit(original)
    return functools.wraps(original)(lambda x: program(backend.convert_to_tensor(x)))


CHANGES = (
    Hook(backend.nn, "relu", _as_program, "x", "an eager tape does not trace its derivative each time"),
    Hook(
        serialization_lib,
        "tf",
        instead(TensorFlowIfLoaded()),
        None,
        "nothing is TensorFlow's before the program has loaded it, which takes seconds",
    ),
    Hook(
        JAXTrainer,
        "__setattr__",
        instead(_set_attribute),
        "self name value",
        "the state of a step is not searched for layers",
    ),
    *(
        Hook(
            CallbackList,
            name,
            functools.partial(_only_if_heard, name),
            "self batch logs",
            "no event, and so no wait for logs, if no callback has a method for it",
        )
        for kind in _KINDS
        for name in (f"on_{kind}_batch_begin", f"on_{kind}_batch_end")
    ),
)
