"""`tf.experimental.numpy.random`: draws of float64 and int64. The numbers are JAX's."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.random import _distributions
from tfdist_jax.compat.tensorflow.random._random_state import next_key, set_seed as seed

__all__ = ["poisson", "rand", "randint", "randn", "random", "seed", "standard_normal", "uniform"]


def uniform(low: Any = 0.0, high: Any = 1.0, size: Any = None) -> jax.Array:
    """Return numbers from `low` up to, and without, `high`; of their shape if there is no `size`."""
    bounds = [convert_to_tensor(bound, dtype_hint=_dtypes.float64).astype(jnp.float64) for bound in (low, high)]
    shape = np.broadcast_shapes(*(bound.shape for bound in bounds)) if size is None else _shape(size)
    return _distributions.uniform(next_key(), shape, 0.0, 1.0, _dtypes.float64) * (bounds[1] - bounds[0]) + bounds[0]


def random(size: Any = None) -> jax.Array:
    """Return numbers in [0, 1)."""
    return uniform(size=() if size is None else size)


def rand(*size: Any) -> jax.Array:
    """Return numbers in [0, 1), of the sizes given one by one."""
    return uniform(size=size)


def randn(*args: Any) -> jax.Array:
    """Return normally distributed numbers, of the sizes given one by one."""
    return standard_normal(args)


def standard_normal(size: Any = None) -> jax.Array:
    """Return normally distributed numbers."""
    return _distributions.normal(next_key(), _shape(() if size is None else size), 0.0, 1.0, _dtypes.float64)


def poisson(lam: Any = 1.0, size: Any = None) -> jax.Array:
    """Return numbers from a Poisson distribution, int64."""
    return _distributions.poisson(next_key(), _shape(() if size is None else size), lam, _dtypes.int64)


def randint(low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64) -> jax.Array:
    """Return integers from `low` (0 if there is one bound only) up to, and without, `high`."""
    first, last = (0, low) if high is None else (low, high)
    drawn = _distributions.uniform(
        next_key(),
        _shape(() if size is None else size),
        first,
        last,
        _dtypes.int64 if dtype == np.int64 else _dtypes.int32,
    )
    return drawn.astype(dtype)


def _shape(size: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in np.atleast_1d(np.asarray(size, int)))
