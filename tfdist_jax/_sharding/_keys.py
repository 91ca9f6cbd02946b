"""Random keys: those that differ between replicas, and those that belong to rows."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax._sharding._collectives import AxisNames
from tfdist_jax._sharding._input import PaddedBatch, num_rows


def is_key(leaf: Any) -> bool:
    """Whether an array is of random keys, as `jax.random.key` makes them."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def make_own_keys(tree: Any, axes: AxisNames) -> Any:
    """Return a tree with each random key in it folded with the replica's number along `axes`, for a program of replicas."""
    return fold_keys(tree, jax.lax.axis_index(axes))


def fold_keys(tree: Any, number: Any) -> Any:
    """Return a tree with each random key in it folded with a number."""

    def fold(leaf: Any) -> Any:
        if not is_key(leaf):
            return leaf
        return jax.vmap(lambda key: jax.random.fold_in(key, number))(leaf.reshape(-1)).reshape(leaf.shape)

    return jax.tree.map(fold, tree)


def row_keys(key: Any, batch: Any) -> Any:
    """Make a random key for each row of a batch, the same however the rows are split.

    A part of a batch, such as `loss((batch, keys))`: random numbers drawn from a row's own key are those of one device.
    Of keys of the kinds `rbg` and `unsafe_rbg`, `jax.vmap` draws numbers that depend on other rows' keys, which is warned of.

    Args:
        key: A random key of `jax.random.key`.
        batch: Pytree of arrays `[rows, ...]`, or a `PaddedBatch`.

    Returns:
        Keys `[rows]`, `fold_in(key, row)` for each; for a `PaddedBatch`, in one.

    Example:
        >>> import jax, numpy as np, tfdist_jax as td
        >>> td.row_keys(jax.random.key(0), {"x": np.zeros((6, 2))}).shape
        (6,)
    """
    fold = jax.vmap(lambda row: jax.random.fold_in(key, row))
    if not isinstance(batch, PaddedBatch):
        return fold(jnp.arange(num_rows(batch)))
    length = max(batch.sizes)
    starts = itertools.accumulate(batch.sizes[:-1], initial=0)
    return PaddedBatch(fold(np.concatenate([start + np.arange(length) for start in starts])), batch.sizes)
