"""`tf.random`: draws that go on from one to the next, and draws that depend on nothing but their seed.

The numbers of `stateless_uniform`, `stateless_normal`, `stateless_truncated_normal`, `split` and `fold_in` are TensorFlow's;
others are JAX's, and differ from TensorFlow's for the same seed.
See https://www.tensorflow.org/api_docs/python/tf/random.
"""

from typing import Any

import jax
import jax.numpy as jnp

from tfdist_jax.compat.tensorflow._ops._arguments import static_int
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.random import _distributions
from tfdist_jax.compat.tensorflow.random._random_state import next_key, stateless_key, stateless_philox


def uniform(
    shape: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = _dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Return numbers from `minval` up to, and without, `maxval` (1 for floats; needed for integers)."""
    return _distributions.uniform(next_key(seed), shape, minval, maxval, dtype)


def normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = _dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Return numbers from a normal distribution."""
    return _distributions.normal(next_key(seed), shape, mean, stddev, dtype)


def truncated_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = _dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Return numbers from a normal distribution without those farther than two standard deviations from the mean."""
    return _distributions.truncated_normal(next_key(seed), shape, mean, stddev, dtype)


def categorical(
    logits: Any, num_samples: Any, dtype: Any = None, seed: int | None = None, name: str | None = None
) -> jax.Array:
    """Return classes (int64 by default) drawn by their logits `[batch, classes]`, as `[batch, num_samples]`."""
    return _distributions.categorical(next_key(seed), logits, num_samples, dtype)


def gamma(
    shape: Any,
    alpha: Any,
    beta: Any = None,
    dtype: Any = _dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Return numbers from gamma distributions with shape `alpha` and rate `beta`, `[*shape, *alpha.shape]`."""
    return _distributions.gamma(next_key(seed), shape, alpha, beta, dtype)


def poisson(
    shape: Any, lam: Any, dtype: Any = _dtypes.float32, seed: int | None = None, name: str | None = None
) -> jax.Array:
    """Return numbers from Poisson distributions, `[*shape, *lam.shape]`."""
    return _distributions.poisson(next_key(seed), shape, lam, dtype)


def shuffle(value: Any, seed: int | None = None, name: str | None = None) -> jax.Array:
    """Return the entries along the first axis in random order."""
    return _distributions.shuffled(next_key(seed), value)


def stateless_uniform(
    shape: Any,
    seed: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = _dtypes.float32,
    name: str | None = None,
    alg: Any = "auto_select",
) -> jax.Array:
    """Return the numbers of `uniform` that two seed numbers name; all integers if `minval` and `maxval` are None."""
    if minval is None and maxval is None:
        return _distributions.full_int(stateless_philox(seed), shape, dtype)
    return _distributions.uniform(stateless_philox(seed), shape, minval, maxval, dtype)


def stateless_normal(
    shape: Any,
    seed: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = _dtypes.float32,
    name: str | None = None,
    alg: Any = "auto_select",
) -> jax.Array:
    """Return the numbers of `normal` that two seed numbers name."""
    return _distributions.normal(stateless_philox(seed), shape, mean, stddev, dtype)


def stateless_truncated_normal(
    shape: Any,
    seed: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = _dtypes.float32,
    name: str | None = None,
    alg: Any = "auto_select",
) -> jax.Array:
    """Return the numbers of `truncated_normal` that two seed numbers name."""
    return _distributions.truncated_normal(stateless_philox(seed), shape, mean, stddev, dtype)


def stateless_categorical(
    logits: Any, num_samples: Any, seed: Any, dtype: Any = _dtypes.int64, name: str | None = None
) -> jax.Array:
    """Return the classes of `categorical` that two seed numbers name."""
    return _distributions.categorical(stateless_key(seed), logits, num_samples, dtype)


def stateless_gamma(
    shape: Any, seed: Any, alpha: Any, beta: Any = None, dtype: Any = _dtypes.float32, name: str | None = None
) -> jax.Array:
    """Return numbers from gamma distributions that two seed numbers name, `shape` being the whole shape."""
    wanted = as_dtype(dtype)
    alpha, beta = convert_to_tensor(alpha, wanted), convert_to_tensor(1 if beta is None else beta, wanted)
    sizes = tuple(static_int(size, "shape") for size in shape)
    return jax.random.gamma(stateless_key(seed), alpha, sizes, wanted.dtype) / beta


def stateless_poisson(
    shape: Any, seed: Any, lam: Any, dtype: Any = _dtypes.int32, name: str | None = None
) -> jax.Array:
    """Return numbers from Poisson distributions that two seed numbers name, `shape` being the whole shape."""
    rate = jnp.broadcast_to(convert_to_tensor(lam, dtype_hint=_dtypes.float32), tuple(shape))
    return _distributions.poisson(stateless_key(seed), (), rate, dtype)


def stateless_binomial(
    shape: Any, seed: Any, counts: Any, probs: Any, output_dtype: Any = _dtypes.int32, name: str | None = None
) -> jax.Array:
    """Return numbers of successes in trials that two seed numbers name."""
    return _distributions.binomial(stateless_key(seed), shape, counts, probs, output_dtype)


def stateless_shuffle(value: Any, seed: Any, alg: Any = "auto_select", name: str | None = None) -> jax.Array:
    """Return the entries along the first axis in the order that two seed numbers name."""
    return _distributions.shuffled(stateless_key(seed), value)


def split(seed: Any, num: int = 2, alg: Any = "auto_select") -> jax.Array:
    """Return `num` new seeds, `[num, 2]`, made from one."""
    seed = convert_to_tensor(seed)
    return stateless_uniform([num, 2], seed, None, None, seed.dtype)


def fold_in(seed: Any, data: Any, alg: Any = "auto_select") -> jax.Array:
    """Return a new seed made from one and a number."""
    number = convert_to_tensor(data)
    return jnp.stack([stateless_uniform([], seed, None, None, number.dtype), number])
