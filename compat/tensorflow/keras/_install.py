"""Puts the hooks into Keras, once for each process; `_hooks` lists them."""

import functools

import keras

from tfdist_jax.compat.tensorflow.keras import (
    _backup,
    _callbacks,
    _downloads,
    _dynamic_scale,
    _first_values,
    _legacy,
    _optimizer,
    _overhead,
    _position,
    _random,
    _saving,
    _seeds,
    _sync_batch_norm,
    _tracked,
    _trainer,
    _variables,
)


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
    _first_values.install()
    _optimizer.install()
    _dynamic_scale.install()
    _random.install()
    _legacy.install()
    _downloads.install()
    _saving.install()
    _seeds.install()
    _sync_batch_norm.install()
    _position.install()
    _backup.install()
    _callbacks.install()
    _overhead.install()
    _tracked.install()
    _trainer.install()
