"""`tf.signal`: cosine transforms, and spectra on the mel scale."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import static_int
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.signal._fft import irfft, rfft

_INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}


def dct(
    input: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None, name: str | None = None
) -> jax.Array:
    """Return discrete cosine transforms over the last axis.

    See https://www.tensorflow.org/api_docs/python/tf/signal/dct.

    Args:
        input: `[..., samples]`, float32 or float64.
        type: 1, 2, 3 or 4.
        n: How many samples to take, with zeros where there are not as many; all if None.
        axis: -1.
        norm: None, or "ortho" for an orthonormal transform (not for type 1).
        name: Unused.
    """
    _check(type, axis, norm, n)
    return _transformed(convert_to_tensor(input), type, n, norm)


def idct(
    input: Any, type: int = 2, n: None = None, axis: int = -1, norm: str | None = None, name: str | None = None
) -> jax.Array:
    """Return inverse discrete cosine transforms; without `norm`, times twice the number of samples.

    See https://www.tensorflow.org/api_docs/python/tf/signal/idct.
    """
    _check(type, axis, norm, n)
    return _transformed(convert_to_tensor(input), _INVERSE[type], n, norm)


def _check(type: int, axis: int, norm: str | None, n: int | None) -> None:
    if axis != -1:
        raise NotImplementedError(f"axis must be -1. Got: {axis}. Use `tf.transpose` before and after.")
    if n is not None and n < 1:
        raise ValueError("n should be a positive integer or None")
    if type not in _INVERSE:
        raise ValueError("Types I, II, III and IV (I)DCT are supported.")
    if norm not in (None, "ortho") or (type == 1 and norm == "ortho"):
        raise ValueError(
            f"Unknown normalization for type {type}: expected None or 'ortho' (not for type 1), got {norm}"
        )


def _transformed(x: jax.Array, type: int, n: int | None, norm: str | None) -> jax.Array:
    if n is not None:
        x = jnp.pad(x[..., :n], [(0, 0)] * (x.ndim - 1) + [(0, max(0, n - x.shape[-1]))])
    size = x.shape[-1]
    if type == 1:
        return jnp.real(rfft(jnp.concatenate([x, x[..., -2:0:-1]], -1)))
    if type == 4:
        odd = _second(x, 2 * size)[..., 1::2]
        return odd if norm is None else odd * np.sqrt(0.5 / size)
    # What makes the basis vectors' lengths 1, of which the first one is constant.
    weights = np.where(np.arange(size) == 0, 0.5 if type == 2 else 1.0, np.sqrt(0.5)) / np.sqrt(size)
    if type == 2:
        return _second(x, size) if norm is None else _second(x, size) * jnp.asarray(weights, x.dtype)
    return _third(x, size) if norm is None else _third(x * jnp.asarray(weights, x.dtype), size)


def _second(x: jax.Array, size: int) -> jax.Array:
    """Return the plain transform of type 2 of samples followed by zeros up to `size`."""
    half = rfft(x, [2 * size])[..., :size]
    return jnp.real(half * _turns(half.dtype, size, -1))


def _third(x: jax.Array, size: int) -> jax.Array:
    wide = jax.lax.complex(x * size, jnp.zeros_like(x))
    return irfft(wide * _turns(wide.dtype, size, 1), [2 * size])[..., :size]


def _turns(dtype: Any, size: int, sign: int) -> jax.Array:
    return jnp.asarray(2 * np.exp(sign * 0.5j * np.pi / size * np.arange(size)), dtype)


def linear_to_mel_weight_matrix(
    num_mel_bins: int = 20,
    num_spectrogram_bins: Any = 129,
    sample_rate: Any = 8000,
    lower_edge_hertz: float = 125.0,
    upper_edge_hertz: float = 3800.0,
    dtype: Any = _dtypes.float32,
    name: str | None = None,
) -> jax.Array:
    """Return the matrix `[num_spectrogram_bins, num_mel_bins]` that brings a spectrogram to the mel scale.

    Triangles of height 1, evenly spaced in mel (2595 log10(1 + hertz / 700)), as in the Hidden Markov Model Toolkit.
    See https://www.tensorflow.org/api_docs/python/tf/signal/linear_to_mel_weight_matrix.

    Raises:
        ValueError: If a number is negative, or the upper edge is above half the sample rate or below the lower edge.
    """
    wanted, rate = as_dtype(dtype), float(sample_rate)
    if num_mel_bins <= 0 or rate <= 0:
        raise ValueError(f"num_mel_bins and sample_rate must be positive. Got: {num_mel_bins} and {rate}")
    if not 0 <= lower_edge_hertz < upper_edge_hertz <= rate / 2:
        raise ValueError(
            "The edges must be 0 <= lower_edge_hertz < upper_edge_hertz <= sample_rate / 2. Got: "
            f"{lower_edge_hertz}, {upper_edge_hertz} for sample_rate: {rate}"
        )
    if not wanted.is_floating:
        raise ValueError(f"dtype must be a floating point type. Got: {wanted!r}")
    mel = lambda hertz: 1127.0 * np.log1p(np.asarray(hertz) / 700.0)
    bins = mel(np.linspace(0.0, rate / 2, static_int(num_spectrogram_bins, "num_spectrogram_bins")))[:, None]
    edges = np.linspace(mel(lower_edge_hertz), mel(upper_edge_hertz), num_mel_bins + 2)
    rising = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
    weights = np.maximum(0, np.minimum(rising, falling))
    weights[0] = 0  # The constant part of a signal is in no band.
    return convert_to_tensor(weights.astype(wanted.dtype))


def mfccs_from_log_mel_spectrograms(log_mel_spectrograms: Any, name: str | None = None) -> jax.Array:
    """Return the mel-frequency cepstral coefficients of logarithms of mel spectrograms, `[..., num_mel_bins]`.

    See https://www.tensorflow.org/api_docs/python/tf/signal/mfccs_from_log_mel_spectrograms.
    """
    spectrograms = convert_to_tensor(log_mel_spectrograms)
    bins = spectrograms.shape[-1]
    if not bins:
        raise ValueError(f"num_mel_bins must be positive. Got shape {tuple(spectrograms.shape)}")
    return dct(spectrograms) / np.sqrt(2.0 * bins)
