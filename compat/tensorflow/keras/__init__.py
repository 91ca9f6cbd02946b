"""`tf.keras`: Keras 3 on JAX, its models trained per replica under the strategy they were made in."""

import importlib
from typing import Any

from tfdist_jax.compat.tensorflow.keras._install import install as install

install()

_keras = importlib.import_module("keras._tf_keras.keras")


def __getattr__(name: str) -> Any:
    return getattr(_keras, name)


def __dir__() -> list[str]:
    return sorted(set(dir(_keras)))
