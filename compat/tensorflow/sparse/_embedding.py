"""`tf.nn`: rows of a table for rows of numbers that differ in length."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensor, sparse
from tfdist_jax.compat.tensorflow.nn._activations import embedding_lookup
from tfdist_jax.compat.tensorflow.sparse._arithmetic import known_places
from tfdist_jax.compat.tensorflow.sparse._selection import fill_empty_rows, retain

_COMBINERS = ("mean", "sqrtn", "sum")


def embedding_lookup_sparse(
    params: Any,
    sp_ids: Any,
    sp_weights: Any,
    combiner: str | None = None,
    max_norm: float | None = None,
    name: str | None = None,
    allow_fast_lookup: bool = False,
) -> jax.Array:
    """Return, for each row of numbers, the rows of `params` that they name, combined.

    See https://www.tensorflow.org/api_docs/python/tf/nn/embedding_lookup_sparse.

    Args:
        params: The table, `[size, *row]`.
        sp_ids: A sparse matrix of integers; its places are known while a function is traced.
        sp_weights: A sparse matrix of weights at the same places, or None.
        combiner: "mean" (also if None), "sqrtn" (the sum divided by the root of the sum of squared weights) or "sum".
        max_norm: Rows of `params` that are longer are shortened to this.
        name: Unused.
        allow_fast_lookup: Unused.

    Returns:
        `[rows up to the last one that is not empty, *row]`.
    """
    ids, how = sparse(sp_ids), combiner or "mean"
    if how not in _COMBINERS:
        raise ValueError(f"combiner must be one of 'mean', 'sqrtn' or 'sum', got {combiner}")
    rows = known_places(ids.indices, "tf.nn.embedding_lookup_sparse")[:, 0]
    if sp_weights is not None:
        _check_weights(ids, sparse(sp_weights))
    found = embedding_lookup(params, ids.values, max_norm)
    wide = found.astype(jnp.float32) if as_dtype(found.dtype).size < 4 else found
    weights = jnp.ones(len(rows), wide.dtype) if sp_weights is None else sp_weights.values.astype(wide.dtype)
    across = (-1,) + (1,) * (wide.ndim - 1)
    number = int(rows.max(initial=-1)) + 1
    total = jnp.zeros((number, *wide.shape[1:]), wide.dtype).at[rows].add(wide * weights.reshape(across))
    if how == "sum":
        return total.astype(found.dtype)
    amounts = weights if how == "mean" else jnp.square(weights)
    amount = jnp.zeros(number, wide.dtype).at[rows].add(amounts)
    divisor = (amount if how == "mean" else jnp.sqrt(amount)).reshape(across)
    return jnp.where(divisor == 0, 0, total / jnp.where(divisor == 0, 1, divisor)).astype(found.dtype)


def _check_weights(ids: SparseTensor, weights: SparseTensor) -> None:
    if np.shape(ids.values) != np.shape(weights.values) or ids.shape != weights.shape:
        raise invalid(f"Weights of shape {tuple(weights.shape)} do not belong to numbers of shape {tuple(ids.shape)}.")


def safe_embedding_lookup_sparse(
    embedding_weights: Any,
    sparse_ids: Any,
    sparse_weights: Any = None,
    combiner: str = "mean",
    default_id: int | None = None,
    max_norm: float | None = None,
    name: str | None = None,
    allow_fast_lookup: bool = False,
) -> jax.Array:
    """Return `embedding_lookup_sparse` with a result for every row: of row `default_id`, or zeros, where none is valid.

    See https://www.tensorflow.org/api_docs/python/tf/nn/safe_embedding_lookup_sparse. Negative numbers, and weights that
    are not positive, are left out.
    """
    ids = sparse(sparse_ids)
    valid = known_places(ids.values, "tf.nn.safe_embedding_lookup_sparse") >= 0
    if sparse_weights is not None:
        valid = valid & (np.asarray(sparse_weights.values) > 0)
        sparse_weights, _ = fill_empty_rows(retain(sparse_weights, valid), 1.0)
    ids, empty = fill_empty_rows(retain(ids, valid), default_id or 0)
    found = embedding_lookup_sparse(embedding_weights, ids, sparse_weights, combiner, max_norm)
    if default_id is not None:
        return found
    return jnp.where(empty.reshape((-1,) + (1,) * (found.ndim - 1)), jnp.zeros_like(found), found)
