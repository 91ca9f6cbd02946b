"""`tf.keras`: Keras 3 on JAX, its models trained per replica under the strategy they were made in."""

from typing import Any

# First: loading Keras puts the hooks in, if the facade is there.
import keras._tf_keras.keras as _keras

from tfdist_jax.compat.tensorflow.keras._install import install as install

install()


def __getattr__(name: str) -> Any:
    return getattr(_keras, name)


def __dir__() -> list[str]:
    return sorted(set(dir(_keras)))
