"""What Keras does and need not do: searching state for layers, telling logs to nobody, loading TensorFlow to ask what is its."""

import functools
import sys
from collections.abc import Callable
from typing import Any, final

from tfdist_jax.compat.tensorflow.keras._change import Hook, instead
from tfdist_jax.compat.tensorflow.keras._internals import (
    CallbackList,
    JAXTrainer,
    is_default,
    lazy_tensorflow,
    rng_utils,
    serialization_lib,
)

_KINDS = ("train", "test", "predict")


@final
class _TensorFlowIfLoaded:
    """The real TensorFlow, for questions whether an object is TensorFlow's: none is before the program has loaded it."""

    @property
    def available(self) -> bool:
        return "tensorflow" in sys.modules and lazy_tensorflow.available

    def __getattr__(self, name: str) -> Any:
        return getattr(lazy_tensorflow, name)


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


CHANGES = (
    *(
        Hook(
            module,
            "tf",
            instead(_TensorFlowIfLoaded()),
            None,
            "nothing is TensorFlow's before the program has loaded it, which takes seconds",
        )
        for module in (rng_utils, serialization_lib)
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
