"""Errors of JAX about tensors that have no value, in the words of who writes TensorFlow."""

from collections.abc import Callable
from typing import Any

import jax

_WITHOUT_VALUE = {
    jax.errors.ConcretizationTypeError: (
        "and it is needed here. Use TensorFlow's functions, which compute with it when the function runs."
    ),
    jax.errors.NonConcreteBooleanIndexError: (
        "so that nobody knows how many entries a mask leaves. Use `tf.boolean_mask`, or `tf.where(mask, x, 0)`."
    ),
    jax.errors.TracerArrayConversionError: (
        "so that NumPy cannot compute with it. Use TensorFlow's functions in place of NumPy's, or `tf.numpy_function`."
    ),
    jax.errors.TracerBoolConversionError: (
        "so that it is neither true nor false. Use `tf.cond` or `tf.where`, or decorate the function with `@tf.function`."
    ),
    jax.errors.TracerIntegerConversionError: (
        "so that it cannot be a number of Python's. Use TensorFlow's functions, such as `tf.range` and `tf.gather`."
    ),
}
_LEFT = "Encountered an unexpected tracer"


class NoValueError(AttributeError):
    """A tensor was asked for its value while a function is traced, when it has none."""


def install() -> None:
    """Give JAX's errors these words. They can also be made of a text alone, as Keras makes errors again to add a layer's name."""
    for kind, words in _WITHOUT_VALUE.items():
        kind.__init__ = _of_tensor(words)
    jax.errors.UnexpectedTracerError.__init__ = _of_left_tensor


def _of_tensor(words: str) -> Callable[..., None]:
    def __init__(self: Any, tensor: Any, context: str = "") -> None:
        if not isinstance(tensor, str):
            shape = getattr(tensor, "aval", tensor).str_short()
            tensor = f"A tensor, {shape}, has no value while a function is traced, {words}"
        self.args = (tensor,)

    return __init__


def _of_left_tensor(self: Any, msg: str) -> None:
    self.args = (
        "A tensor of a function is out of scope: it had a value in that function's program alone. Return it from there instead of "
        "keeping it in a variable, list or attribute."
        if msg.startswith(_LEFT)
        else msg,
    )
