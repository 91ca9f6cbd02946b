"""`tf.compat.v1.keras`: `tf.keras`, which is Keras 3."""

from typing import Any

import tfdist_jax.compat.tensorflow.keras as _keras


def __getattr__(name: str) -> Any:
    return getattr(_keras, name)


def __dir__() -> list[str]:
    return dir(_keras)
