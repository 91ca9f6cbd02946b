"""`tf.sparse.cross`, `tf.sparse.cross_hashed`: all combinations of the values of features, row by row."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.ragged._base import Ragged
from tfdist_jax.compat.tensorflow.ragged._crossing import combine_features, hash_features, join_features
from tfdist_jax.compat.tensorflow.ragged._row_partition import RowPartition


def cross(inputs: Sequence[Any], name: str | None = None, separator: str | None = None) -> SparseTensor:
    """Return, for each row, all combinations of one value of each input, as texts such as "a_X_b".

    Args:
        inputs: Matrices `[rows, n]` of texts or integers, sparse or dense. Values of sparse ones come first in a combination.
        name: Unused.
        separator: What stands between two values; "_X_" if None.

    Returns:
        Strings `[rows, n]`, as many in each row as it has combinations.

    Raises:
        InvalidArgumentError: If one is no matrix, or they have different numbers of rows.
        TypeError: If one is ragged, or `inputs` is no list.
    """
    columns, rows = combine_features(_in_order(inputs))
    return _sparse(join_features(columns, b"_X_" if separator is None else separator.encode()), rows)


def cross_hashed(
    inputs: Sequence[Any], num_buckets: int = 0, hash_key: int | None = None, name: str | None = None
) -> SparseTensor:
    """Return, for each row, hashes of all combinations of one value of each input, int64; see `cross`.

    Args:
        inputs: Matrices `[rows, n]` of texts or integers, sparse or dense.
        num_buckets: How many numbers there are; 0 for as many as int64 has from zero on.
        hash_key: What the hashes begin with.
        name: Unused.

    Raises:
        InvalidArgumentError: If one is no matrix, they have different numbers of rows, or `num_buckets` is negative.
        TypeError: If one is ragged, or `inputs` is no list.
    """
    columns, rows = combine_features(_in_order(inputs))
    return _sparse(hash_features(columns, num_buckets, hash_key), rows)


def _in_order(inputs: Any) -> list[Any]:
    if not isinstance(inputs, list):
        raise TypeError("Inputs must be a list")
    if any(isinstance(one, Ragged) for one in inputs):
        raise TypeError("All inputs must be Tensor or SparseTensor.")
    tensors = [one if isinstance(one, SparseTensor) else convert_to_tensor(one) for one in inputs]
    for place, one in enumerate(tensors):
        if len(np.shape(one)) != 2:
            raise invalid(
                f"Dense inputs should be a matrix but received shape {list(np.shape(one))} at position {place}"
            )
    return sorted(tensors, key=lambda one: not isinstance(one, SparseTensor))


def _sparse(values: Any, rows: RowPartition) -> SparseTensor:
    indices = np.stack([rows.rowids, rows.columns], axis=1).astype(np.int64)
    return SparseTensor(indices, values, [rows.nrows, int(rows.lengths.max(initial=0))])
