"""Numbers from distributions, given a key of JAX or a `Philox`, whose numbers are TensorFlow's."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import compute, invalid, static_int, static_ints
from tfdist_jax.compat.tensorflow._ops._cast import cast
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._checks import on_cpu
from tfdist_jax.compat.tensorflow._tensors._dtypes import DType, as_dtype
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.random import _philox
from tfdist_jax.compat.tensorflow.random._philox import Philox

_TRUNCATION = 2.0
_WIDE = 8

Key = jax.Array | Philox


def uniform(key: Key, shape: Any, minval: Any, maxval: Any, dtype: Any) -> jax.Array:
    """Return numbers from `minval` up to, and without, `maxval` (1 for floats if None)."""
    wanted, sizes = as_dtype(dtype), _sizes(shape)
    if maxval is None:
        if wanted.is_integer:
            raise ValueError(f"Must specify maxval for integer dtype {wanted!r}.")
        maxval = 1
    low, high = convert_to_tensor(minval, wanted), convert_to_tensor(maxval, wanted)
    if wanted.is_integer and math.prod(sizes):
        _must_have_numbers(low, high)
    draw = _integers if wanted.is_integer else _uniform
    return compute(draw, key, sizes, low, high, wanted.dtype)


def _sizes(shape: Any) -> tuple[int, ...]:
    sizes = static_ints(shape, "shape")
    if any(size < 0 for size in sizes):
        raise invalid(f"Dimension sizes must be >= 0, got the shape {list(sizes)}.")
    return sizes


def _uniform(key: Key, shape: tuple[int, ...], low: Any, high: Any, dtype: Any) -> jax.Array:
    draw: Any = _philox.uniform if isinstance(key, Philox) else jax.random.uniform
    return draw(key, shape, dtype) * (high - low) + low


def _must_have_numbers(low: Any, high: Any) -> None:
    """Refuse an empty range of integers, as far as it is known."""
    first, end = on_cpu(low), on_cpu(high)
    if first is not None and end is not None and np.any(first >= end):
        raise invalid(f"Need minval < maxval, got {first.tolist()} >= {end.tolist()}")


def _integers(key: Key, shape: tuple[int, ...], low: Any, high: Any, dtype: Any) -> jax.Array:
    if isinstance(key, Philox):
        unsigned = np.dtype(f"uint{8 * dtype.itemsize}")
        span = high.astype(unsigned) - low.astype(unsigned)
        return low + (_philox.bits(key, shape, unsigned) % span).astype(dtype)
    if dtype.itemsize < _WIDE:
        return jax.random.randint(key, shape, low, high, dtype)
    # jax 0.10 leaves the range with 64-bit integers while its global 64-bit switch is off.
    span = (high - low).astype(np.uint64)
    return low + (jax.random.bits(key, shape, np.uint64) % span).astype(dtype)


def full_int(key: Key, shape: Any, dtype: Any) -> jax.Array:
    """Return integers from the whole range of their type."""
    wanted = as_dtype(dtype)
    if not wanted.is_integer:
        raise ValueError(
            f"Only integers have a range that is drawn from as a whole, not {wanted!r}: give `minval` and `maxval`."
        )
    draw: Any = _philox.bits if isinstance(key, Philox) else jax.random.bits
    bits = draw(key, _sizes(shape), np.dtype(f"uint{8 * wanted.size}"))
    return jax.lax.bitcast_convert_type(bits, wanted.dtype)


def normal(key: Key, shape: Any, mean: Any, stddev: Any, dtype: Any) -> jax.Array:
    """Return numbers from a normal distribution."""
    wanted = as_dtype(dtype)
    unit = _between(key, _sizes(shape), None, wanted)
    return compute(lambda: unit * convert_to_tensor(stddev, wanted) + convert_to_tensor(mean, wanted))


def truncated_normal(key: Key, shape: Any, mean: Any, stddev: Any, dtype: Any) -> jax.Array:
    """Return numbers from a normal distribution without those farther than two standard deviations from the mean."""
    wanted = as_dtype(dtype)
    unit = _between(key, _sizes(shape), _TRUNCATION, wanted)
    return compute(lambda: unit * convert_to_tensor(stddev, wanted) + convert_to_tensor(mean, wanted))


def _between(key: Key, shape: tuple[int, ...], bound: float | None, wanted: DType) -> jax.Array:
    """Return standard normal numbers between `-bound` and `bound`."""
    if isinstance(key, Philox):
        return (_philox.normal if bound is None else _philox.truncated_normal)(key, shape, wanted.dtype)
    if wanted is not _dtypes.float64:
        if bound is None:
            return jax.random.normal(key, shape, wanted.dtype)
        return jax.random.truncated_normal(key, -bound, bound, shape, wanted.dtype)
    # JAX draws float64 only with its global 64-bit switch on: invert the distribution function here.
    edge = np.nextafter(1.0, 0.0) if bound is None else float(jax.scipy.special.erf(bound / np.sqrt(2.0)))
    shares = jax.random.uniform(key, shape, np.float64) * (2 * edge) - edge
    values = np.sqrt(2.0) * jax.scipy.special.erfinv(jnp.clip(shares, -edge, edge))
    return values if bound is None else jnp.clip(values, -bound, bound)


def categorical(key: jax.Array, logits: Any, num_samples: Any, dtype: Any) -> jax.Array:
    """Return classes drawn by their logits `[batch, classes]`, as `[batch, num_samples]`."""
    # JAX's argmax does not take float64, and the draws have no more than 32 random bits anyway.
    logits = cast(logits, _dtypes.float32)
    if logits.ndim != 2:
        raise ValueError(f"logits should be a matrix, got shape {tuple(logits.shape)}.")
    shape = (logits.shape[0], static_int(num_samples, "num_samples"))
    classes = jax.random.categorical(key, logits[:, None, :], axis=-1, shape=shape)
    return classes.astype(as_dtype(dtype or _dtypes.int64).dtype)


def gamma(key: jax.Array, shape: Any, alpha: Any, beta: Any, dtype: Any) -> jax.Array:
    """Return numbers from gamma distributions with shape `alpha` and rate `beta`, `[*shape, *alpha.shape]`."""
    wanted = as_dtype(dtype)
    alpha, beta = convert_to_tensor(alpha, wanted), convert_to_tensor(1 if beta is None else beta, wanted)
    sizes = (*_sizes(shape), *np.broadcast_shapes(alpha.shape, beta.shape))
    return jax.random.gamma(key, alpha, sizes, wanted.dtype) / beta


def poisson(key: jax.Array, shape: Any, lam: Any, dtype: Any) -> jax.Array:
    """Return numbers from Poisson distributions, `[*shape, *lam.shape]`."""
    rate = convert_to_tensor(lam, dtype_hint=_dtypes.float32)
    counts = jax.random.poisson(key, rate, (*_sizes(shape), *rate.shape), jnp.int32)
    return counts.astype(as_dtype(dtype).dtype)


def binomial(key: jax.Array, shape: Any, counts: Any, probs: Any, dtype: Any) -> jax.Array:
    """Return numbers of successes in `counts` trials of probability `probs`."""
    trials = convert_to_tensor(counts, dtype_hint=_dtypes.float32).astype(jnp.float32)
    chance = convert_to_tensor(probs, dtype_hint=_dtypes.float32)
    drawn = compute(jax.random.binomial, key, trials, chance, _sizes(shape))
    return drawn.astype(as_dtype(dtype).dtype)


def shuffled(key: jax.Array, value: Any) -> jax.Array:
    """Return the entries along the first axis in random order."""
    tensor = convert_to_tensor(value)
    return tensor[jax.random.permutation(key, tensor.shape[0])]
