"""Keras's messages, which speak of JAX where the program is TensorFlow's."""

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from tfdist_jax.compat.tensorflow.keras._change import Hook, instead
from tfdist_jax.compat.tensorflow.keras._internals import KerasTensor, traceback_utils


def _naming_tensors(original: Callable[[Any], str]) -> Callable[[Any], str]:
    @functools.wraps(original)
    def format_argument_value(value: Any) -> str:
        text = original(value)
        return f"tf.Tensor({text.removeprefix('jnp.ndarray(')}" if text.startswith("jnp.ndarray(") else text

    return format_argument_value


def _refuse_symbolic(self: Any) -> NoReturn:
    raise ValueError(
        f"A symbolic tensor of Keras, of shape {self.shape}, was given to a function that computes values, which it does not have. "
        "Use an operation of `keras.ops`, or call the function in a layer: `keras.layers.Lambda(function)(x)`, or a layer of your own."
    )


CHANGES = (
    Hook(traceback_utils, "format_argument_value", _naming_tensors, "value", "tensors are TensorFlow's in messages"),
    Hook(
        KerasTensor, "__jax_array__", instead(_refuse_symbolic), "self", "the program has no JAX function; not called"
    ),
)
