"""Puts the hooks into Keras, once for each process."""

import functools

import keras

from tfdist_jax.compat.tensorflow.keras import _optimizer, _random, _trainer, _variables


@functools.cache
def install() -> None:
    """Make Keras's variables, optimizers, random numbers and models work with strategies.

    Raises:
        RuntimeError: If Keras runs on another backend than JAX.
    """
    if keras.backend.backend() != "jax":
        raise RuntimeError(
            f"Keras is loaded with the {keras.backend.backend()!r} backend, but strategies need 'jax'. Import tensorflow "
            "(tfdist_jax.compat.tensorflow) before keras, or set KERAS_BACKEND=jax."
        )
    _variables.install()
    _optimizer.install()
    _random.install()
    _trainer.install()
