"""Models of 64 bits, as TensorFlow computes them; Keras on JAX knows 32.

JAX takes most 64-bit numbers for ones of 32 unless its switch is on. It goes on with the first of them that a program asks Keras for:
where no model has 64 bits, compiled programs and the sizes of integers stay as they are.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import keras
import keras._tf_keras.keras as tf_keras

from tfdist_jax.compat.tensorflow.keras._change import Hook
from tfdist_jax.compat.tensorflow.keras._internals import backend, backend_config, dtypes


def _keep_64_bits(*names: Any) -> None:
    if "float64" in names:
        jax.config.update("jax_enable_x64", True)


def _for_the_default(original: Callable[[str], None]) -> Callable[[str], None]:
    @functools.wraps(original)
    def set_floatx(value: str) -> None:
        original(value)
        _keep_64_bits(value)

    return set_floatx


def _for_the_policy(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _parse_name(self: Any, name: str) -> Any:
        found = original(self, name)
        _keep_64_bits(*found)
        return found

    return _parse_name


CHANGES = (
    Hook(
        dtypes,
        "BIT64_TO_BIT32_DTYPE",
        lambda original: {**original, "float64": "float64"},
        None,
        "what is computed from float64 is float64, as in Keras on TensorFlow",
    ),
    Hook(
        backend_config,
        "set_floatx",
        _for_the_default,
        "value",
        "float64 needs JAX's switch",
        (backend, keras.backend, keras.config, tf_keras.backend),
    ),
    Hook(keras.DTypePolicy, "_parse_name", _for_the_policy, "self name", "float64 needs JAX's switch"),
)
