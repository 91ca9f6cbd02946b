"""Entries of arrays that are stacked, one for each of something."""

from typing import Any

import jax


def take(stacked: Any, index: Any) -> Any:
    """Return one entry of each array `[entries, ...]` of a pytree."""
    return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), stacked)


def put(stacked: Any, index: Any, entry: Any) -> Any:
    """Return arrays `[entries, ...]` with one entry of each replaced."""
    return jax.tree.map(lambda leaf, new: jax.lax.dynamic_update_index_in_dim(leaf, new, index, 0), stacked, entry)
