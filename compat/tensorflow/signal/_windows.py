"""`tf.signal`: window functions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import special

from tfdist_jax.compat.tensorflow._ops._arguments import static_int
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._dtypes import DType, as_dtype


def hann_window(
    window_length: Any, periodic: Any = True, dtype: Any = _dtypes.float32, name: str | None = None
) -> jax.Array:
    """Return a Hann window, `[window_length]`; a periodic one is for spectra, a symmetric one for filters.

    See https://www.tensorflow.org/api_docs/python/tf/signal/hann_window.
    """
    return _raised_cosine(window_length, periodic, dtype, 0.5)


def hamming_window(
    window_length: Any, periodic: Any = True, dtype: Any = _dtypes.float32, name: str | None = None
) -> jax.Array:
    """Return a Hamming window, `[window_length]`; a periodic one is for spectra, a symmetric one for filters.

    See https://www.tensorflow.org/api_docs/python/tf/signal/hamming_window.
    """
    return _raised_cosine(window_length, periodic, dtype, 0.54)


def kaiser_window(
    window_length: Any, beta: Any = 12.0, dtype: Any = _dtypes.float32, name: str | None = None
) -> jax.Array:
    """Return a Kaiser window, `[window_length]`.

    See https://www.tensorflow.org/api_docs/python/tf/signal/kaiser_window.
    """
    length, wanted = _checked(window_length, dtype)
    if length == 1:
        return jnp.ones(1, wanted.dtype)
    half = (length - 1) / 2
    place = (jnp.arange(length, dtype=wanted.dtype) - half) / half
    beta = jnp.asarray(beta, wanted.dtype)
    inside = beta * jnp.sqrt(jnp.maximum(1 - jnp.square(place), 0))
    # Scaled Bessel functions: the plain ones overflow for large `beta`.
    return jnp.exp(inside - beta) * special.i0e(inside) / special.i0e(beta)


def kaiser_bessel_derived_window(
    window_length: Any, beta: Any = 12.0, dtype: Any = _dtypes.float32, name: str | None = None
) -> jax.Array:
    """Return a window made of a Kaiser window's sums, whose halves complement each other; its length is even.

    See https://www.tensorflow.org/api_docs/python/tf/signal/kaiser_bessel_derived_window.
    """
    length, wanted = _checked(window_length, dtype)
    sums = jnp.cumsum(kaiser_window(length // 2 + 1, beta, wanted))
    half = jnp.sqrt(sums[:-1] / sums[-1])
    return jnp.concatenate([half, half[::-1]])


def vorbis_window(window_length: Any, dtype: Any = _dtypes.float32, name: str | None = None) -> jax.Array:
    """Return the window of the Vorbis codec, `[window_length]`.

    See https://www.tensorflow.org/api_docs/python/tf/signal/vorbis_window.
    """
    length, wanted = _checked(window_length, dtype)
    place = (jnp.arange(length, dtype=wanted.dtype) + 0.5) * (np.pi / length)
    return jnp.sin(np.pi / 2 * jnp.square(jnp.sin(place)))


def _raised_cosine(window_length: Any, periodic: Any, dtype: Any, mean: float) -> jax.Array:
    length, wanted = _checked(window_length, dtype)
    if length == 1:
        return jnp.ones(1, wanted.dtype)
    # As in TensorFlow, an odd length gives the symmetric window in either case.
    period = length - 1 + (bool(periodic) and length % 2 == 0)
    angle = jnp.arange(length, dtype=wanted.dtype) * (2 * np.pi) / period
    return (mean - (1 - mean) * jnp.cos(angle)).astype(wanted.dtype)


def _checked(window_length: Any, dtype: Any) -> tuple[int, DType]:
    wanted = as_dtype(dtype)
    if not wanted.is_floating:
        raise ValueError(f"dtype must be a floating point type. Found {wanted!r}")
    return static_int(window_length, "window_length"), wanted
