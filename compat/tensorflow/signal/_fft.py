"""`tf.signal`: Fourier transforms over the last axes, or over axes of one's choice."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import axes as known_axes, compute, invalid, require, static_ints
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor

_PAGE = "https://www.tensorflow.org/api_docs/python/tf/signal"
_SPACES = {1: "axis", 2: "two axes", 3: "three axes"}


def _transform(name: str, kind: str, rank: int, doc: str) -> Callable[..., Any]:
    """Make a transform between complex tensors over the last `rank` axes."""

    def operation(input: Any, name: str | None = None) -> Any:
        tensor = require(convert_to_tensor(input, dtype_hint=_dtypes.complex64), "c", f"signal.{operation.__name__}")
        _check_rank(tensor, rank, invalid)
        return compute(jax.lax.fft, tensor, kind, tensor.shape[-rank:])

    return _described(operation, name, f"{doc} over the last {_SPACES[rank]}.")


def _real_transform(name: str, kind: str, rank: int, doc: str) -> Callable[..., Any]:
    """Make a transform between real and complex tensors, whose sizes are padded or cut to `fft_length`."""
    hint, wanted = (_dtypes.float32, "f") if kind == "RFFT" else (_dtypes.complex64, "c")

    def operation(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Any:
        tensor = _of_kind(convert_to_tensor(input_tensor, dtype_hint=hint), wanted, operation.__name__)
        _check_rank(tensor, rank, ValueError)
        sizes = _lengths(tensor.shape[-rank:], fft_length, inverse=kind == "IRFFT")
        if len(sizes) != rank:
            raise invalid(f"`fft_length` must have {rank} numbers, got {list(sizes)}.")
        inner = sizes if kind == "RFFT" else (*sizes[:-1], sizes[-1] // 2 + 1)
        return compute(jax.lax.fft, _fitted(tensor, range(-rank, 0), inner), kind, sizes)

    return _described(operation, name, f"{doc} over the last {_SPACES[rank]}.")


def _described(operation: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = f"{doc}\n\n    See {_PAGE}/{name}.\n    "
    return operation


def _of_kind(tensor: jax.Array, wanted: str, name: str) -> jax.Array:
    dtype = as_dtype(tensor.dtype)
    if dtype not in ((_dtypes.float32, _dtypes.float64) if wanted == "f" else (_dtypes.complex64, _dtypes.complex128)):
        needed = "float32 or float64" if wanted == "f" else "complex64 or complex128"
        raise ValueError(f"tf.signal.{name} needs {needed} tensors, got {dtype.name}. Use `tf.cast`.")
    return tensor


def _check_rank(tensor: jax.Array, rank: int, error: Callable[[str], Exception]) -> None:
    if tensor.ndim < rank:
        raise error(f"Input must have at least {rank} axes, got shape {tuple(tensor.shape)}.")


def _lengths(sizes: Sequence[int], fft_length: Any, *, inverse: bool) -> tuple[int, ...]:
    if fft_length is not None:
        return static_ints(fft_length, "fft_length")
    return (*sizes[:-1], max(0, 2 * (sizes[-1] - 1))) if inverse else tuple(sizes)


def _fitted(tensor: jax.Array, over: Sequence[int], sizes: Sequence[int]) -> jax.Array:
    """Cut, or fill with zeros, to `sizes` along axes."""
    for axis, size in zip(over, sizes, strict=True):
        have = tensor.shape[axis]
        if have > size:
            tensor = jax.lax.slice_in_dim(tensor, 0, size, axis=axis % tensor.ndim)
        elif have < size:
            widths = [(0, 0)] * tensor.ndim
            widths[axis] = (0, size - have)
            tensor = jnp.pad(tensor, widths)
    return tensor


fft = _transform("fft", "FFT", 1, "Return the discrete Fourier transform")
ifft = _transform("ifft", "IFFT", 1, "Return the inverse discrete Fourier transform")
fft2d = _transform("fft2d", "FFT", 2, "Return the discrete Fourier transform")
ifft2d = _transform("ifft2d", "IFFT", 2, "Return the inverse discrete Fourier transform")
fft3d = _transform("fft3d", "FFT", 3, "Return the discrete Fourier transform")
ifft3d = _transform("ifft3d", "IFFT", 3, "Return the inverse discrete Fourier transform")
rfft = _real_transform("rfft", "RFFT", 1, "Return the first half of the Fourier transform of real numbers")
irfft = _real_transform("irfft", "IRFFT", 1, "Return the real numbers that have this half of a Fourier transform")
rfft2d = _real_transform("rfft2d", "RFFT", 2, "Return the first half of the Fourier transform of real numbers")
irfft2d = _real_transform("irfft2d", "IRFFT", 2, "Return the real numbers that have this half of a Fourier transform")
rfft3d = _real_transform("rfft3d", "RFFT", 3, "Return the first half of the Fourier transform of real numbers")
irfft3d = _real_transform("irfft3d", "IRFFT", 3, "Return the real numbers that have this half of a Fourier transform")


def _any_axes(name: str, kind: str, doc: str) -> Callable[..., Any]:
    """Make a transform over given axes, one axis after another."""
    real, inverse = kind.removeprefix("I").startswith("R"), kind.startswith("I")
    hint = _dtypes.float32 if kind == "RFFT" else _dtypes.complex64

    def operation(
        input_tensor: Any, fft_length: Any = None, axes: Any = None, norm: str | None = None, name: str | None = None
    ) -> Any:
        tensor = convert_to_tensor(input_tensor, dtype_hint=hint)
        tensor = _of_kind(tensor, "f" if kind == "RFFT" else "c", operation.__name__)
        over = tuple(range(tensor.ndim)) if axes is None else static_ints(axes, "axes")
        sizes = _lengths([tensor.shape[axis] for axis in over], fft_length, inverse=kind == "IRFFT")
        inner = (*sizes[:-1], sizes[-1] // 2 + 1) if kind == "IRFFT" else sizes
        fitted = _fitted(tensor, over, inner)
        order = reversed(range(len(over))) if not inverse else range(len(over))
        for place in order:
            last = real and place == len(over) - 1
            one = kind if last or not real else ("IFFT" if inverse else "FFT")
            fitted = _along(fitted, one, over[place], sizes[place])
        return fitted * _scale(norm, sizes, inverse=inverse)

    return _described(operation, name, f"{doc} over `axes` (all if None).")


def _along(tensor: jax.Array, kind: str, axis: int, size: int) -> jax.Array:
    return jnp.moveaxis(jax.lax.fft(jnp.moveaxis(tensor, axis, -1), kind, (size,)), -1, axis)


def _scale(norm: str | None, sizes: Sequence[int], *, inverse: bool) -> float:
    """Return what the transform is multiplied with; only inverses are scaled if there is no norm."""
    number = float(np.prod(sizes))
    scales = {None: 1.0, "backward": 1.0, "ortho": number**0.5, "forward": number}
    if norm not in scales:
        raise ValueError(f'`norm` must be None, "backward", "ortho" or "forward", got {norm!r}.')
    return scales[norm] if inverse else 1 / scales[norm]


fftnd = _any_axes("fftnd", "FFT", "Return the discrete Fourier transform")
ifftnd = _any_axes("ifftnd", "IFFT", "Return the inverse discrete Fourier transform")
rfftnd = _any_axes("rfftnd", "RFFT", "Return the first half of the Fourier transform of real numbers")
irfftnd = _any_axes("irfftnd", "IRFFT", "Return the real numbers that have this half of a Fourier transform")


def fftshift(x: Any, axes: Any = None, name: str | None = None) -> Any:
    """Return the tensor with frequency zero moved to the middle of the axes (all if None)."""
    return compute(jnp.fft.fftshift, convert_to_tensor(x), known_axes(axes))


def ifftshift(x: Any, axes: Any = None, name: str | None = None) -> Any:
    """Undo `fftshift`."""
    return compute(jnp.fft.ifftshift, convert_to_tensor(x), known_axes(axes))
