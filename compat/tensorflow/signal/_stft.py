"""`tf.signal`: signals as overlapping frames, and the transforms of such frames."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import compute, static_axis, static_int
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.signal._fft import irfft, rfft
from tfdist_jax.compat.tensorflow.signal._spectra import dct, idct
from tfdist_jax.compat.tensorflow.signal._windows import hann_window, vorbis_window

# The four parts into which MDCT folds a frame.
_QUARTERS = 4


def frame(
    signal: Any,
    frame_length: Any,
    frame_step: Any,
    pad_end: bool = False,
    pad_value: Any = 0,
    axis: Any = -1,
    name: str | None = None,
) -> jax.Array:
    """Return overlapping pieces of a signal.

    See https://www.tensorflow.org/api_docs/python/tf/signal/frame.

    Args:
        signal: A tensor, `[..., samples, ...]`.
        frame_length: Samples in a frame.
        frame_step: Samples from the start of a frame to the next.
        pad_end: Whether to fill up frames that begin inside of the signal and end outside.
        pad_value: What to fill with.
        axis: The axis of the samples.
        name: Unused.

    Returns:
        `[..., frames, frame_length, ...]`.
    """
    tensor = convert_to_tensor(signal)
    length, step = static_int(frame_length, "frame_length"), static_int(frame_step, "frame_step")
    if not tensor.ndim:
        raise ValueError("Shape () must have rank at least 1")
    along = static_axis(axis, tensor.ndim)
    samples = tensor.shape[along]
    number = max(0, -(-samples // step) if pad_end else 1 + (samples - length) // step)
    missing = max(0, length + step * (number - 1) - samples) if pad_end else 0
    widths = [(0, missing if i == along else 0) for i in range(tensor.ndim)]
    padded = jnp.pad(tensor, widths, constant_values=pad_value) if missing else tensor
    places = step * np.arange(number)[:, None] + np.arange(length)
    return compute(jnp.take, padded, places, axis=along)


def overlap_and_add(signal: Any, frame_step: Any, name: str | None = None) -> jax.Array:
    """Return the signal `[..., samples]` that is the sum of frames `[..., frames, frame_length]`, each moved on by a step.

    See https://www.tensorflow.org/api_docs/python/tf/signal/overlap_and_add.
    """
    frames, step = convert_to_tensor(signal), _whole(frame_step, "frame_step")
    if frames.ndim < 2:
        raise ValueError(f"Shape {tuple(frames.shape)} must have rank at least 2")
    number, length = frames.shape[-2:]
    places = step * np.arange(number)[:, None] + np.arange(length)
    empty = jnp.zeros((*frames.shape[:-2], length + step * (number - 1)), frames.dtype)
    return empty.at[..., places].add(frames)


def _whole(value: Any, name: str) -> int:
    if not as_dtype(convert_to_tensor(value).dtype).is_integer:
        raise ValueError(f"{name} must be an integer. Got {value!r}")
    return static_int(value, name)


def stft(
    signals: Any,
    frame_length: Any,
    frame_step: Any,
    fft_length: Any = None,
    window_fn: Callable[..., Any] | None = hann_window,
    pad_end: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Return the Fourier transforms of overlapping, windowed pieces of signals.

    See https://www.tensorflow.org/api_docs/python/tf/signal/stft.

    Args:
        signals: `[..., samples]`, float32 or float64.
        frame_length: Samples in a frame.
        frame_step: Samples from the start of a frame to the next.
        fft_length: Length of the transforms; if None, the next power of 2 from `frame_length` on.
        window_fn: Gives a window for a length and `dtype`; None for no window.
        pad_end: Whether to fill up frames that end outside of the signal with zeros.
        name: Unused.

    Returns:
        `[..., frames, fft_length // 2 + 1]`, complex.
    """
    frames = frame(signals, frame_length, frame_step, pad_end=pad_end)
    return rfft(_windowed(frames, window_fn, frame_length), [_transform_length(frame_length, fft_length)])


def inverse_stft(
    stfts: Any,
    frame_length: Any,
    frame_step: Any,
    fft_length: Any = None,
    window_fn: Callable[..., Any] | None = hann_window,
    name: str | None = None,
) -> jax.Array:
    """Return the signals `[..., samples]` that have given short-time Fourier transforms.

    With `window_fn=tf.signal.inverse_stft_window_fn(frame_step)` it undoes `stft`; the other arguments are its.
    See https://www.tensorflow.org/api_docs/python/tf/signal/inverse_stft.
    """
    length = static_int(frame_length, "frame_length")
    frames = irfft(stfts, [_transform_length(length, fft_length)])[..., :length]
    missing = length - frames.shape[-1]
    frames = jnp.pad(frames, [(0, 0)] * (frames.ndim - 1) + [(0, missing)])
    return overlap_and_add(_windowed(frames, window_fn, length), frame_step)


def inverse_stft_window_fn(
    frame_step: Any, forward_window_fn: Callable[..., Any] = hann_window, name: str | None = None
) -> Callable[..., Any]:
    """Return the `window_fn` with which `inverse_stft` undoes a `stft` with `forward_window_fn`.

    See https://www.tensorflow.org/api_docs/python/tf/signal/inverse_stft_window_fn.
    """
    step = static_int(frame_step, "frame_step")

    def window_fn(frame_length: Any, dtype: Any) -> jax.Array:
        length = static_int(frame_length, "frame_length")
        forward = forward_window_fn(length, dtype=dtype)
        overlaps = -(-length // step)
        squares = jnp.pad(jnp.square(forward), (0, overlaps * step - length))
        # Griffin and Lim, 1984, equation 7: each sample is divided by the squares of all windows over it.
        total = jnp.tile(jnp.sum(squares.reshape(overlaps, step), 0), overlaps)[:length]
        return jnp.where(total == 0, 0, forward / jnp.where(total == 0, 1, total))

    return window_fn


def mdct(
    signals: Any,
    frame_length: Any,
    window_fn: Callable[..., Any] | None = vorbis_window,
    pad_end: bool = False,
    norm: str | None = None,
    name: str | None = None,
) -> jax.Array:
    """Return modified discrete cosine transforms, `[..., frames, frame_length // 2]`, of frames that overlap by half.

    See https://www.tensorflow.org/api_docs/python/tf/signal/mdct.
    """
    length = static_int(frame_length, "frame_length")
    if length % _QUARTERS:
        raise ValueError("The frame length must be a multiple of 4.")
    frames = frame(signals, length, length // 2, pad_end=pad_end)
    frames = frames * np.float32(0.5**0.5) if window_fn is None else _windowed(frames, window_fn, length)
    a, b, c, d = jnp.split(frames, _QUARTERS, -1)
    folded = jnp.concatenate([-jnp.flip(c, -1) - d, a - jnp.flip(b, -1)], -1)
    return dct(folded, type=4, norm=norm)


def inverse_mdct(
    mdcts: Any,
    window_fn: Callable[..., Any] | None = vorbis_window,
    norm: str | None = None,
    name: str | None = None,
) -> jax.Array:
    """Return the signals `[..., samples]` of modified discrete cosine transforms.

    See https://www.tensorflow.org/api_docs/python/tf/signal/inverse_mdct.
    """
    transforms = convert_to_tensor(mdcts)
    half = transforms.shape[-1]
    unfolded = idct(transforms, type=4, norm=norm)
    if norm is None:
        unfolded = unfolded * (0.5 / half)
    first, second = jnp.split(unfolded, 2, -1)
    frames = jnp.concatenate([second, -jnp.flip(second, -1), -jnp.flip(first, -1), -first], -1)
    frames = frames * np.float32(0.5**0.5) if window_fn is None else _windowed(frames, window_fn, 2 * half)
    return overlap_and_add(frames, half)


def _windowed(frames: jax.Array, window_fn: Callable[..., Any] | None, length: Any) -> jax.Array:
    if window_fn is None:
        return frames
    return compute(jnp.multiply, frames, window_fn(static_int(length, "frame_length"), dtype=as_dtype(frames.dtype)))


def _transform_length(frame_length: Any, fft_length: Any) -> int:
    if fft_length is not None:
        return static_int(fft_length, "fft_length")
    return 1 << max(0, static_int(frame_length, "frame_length") - 1).bit_length()
