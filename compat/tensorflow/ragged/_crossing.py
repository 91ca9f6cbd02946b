"""`tf.ragged.cross`, `tf.ragged.cross_hashed`: all combinations of the values of features, row by row."""

from collections.abc import Sequence
from typing import Any

import farmhash
import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid, value_of
from tfdist_jax.compat.tensorflow._ops._host_operation import make_strings
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.ragged._base import Ragged
from tfdist_jax.compat.tensorflow.ragged._ragged_tensor import RaggedTensor
from tfdist_jax.compat.tensorflow.ragged._row_partition import NOT_TRACED, RowPartition

_HASH_KEY = 0xDECAFCAFFE
_FACTOR = np.uint64(0xC6A4A7935BD1E995)
_LARGEST = np.iinfo(np.int64).max


def cross(inputs: Sequence[Any], name: str | None = None) -> Any:
    """Return, for each row, all combinations of one value of each input, as texts such as "a_X_b".

    See https://www.tensorflow.org/api_docs/python/tf/ragged/cross.

    Args:
        inputs: Matrices of texts or integers: ragged, sparse or others.
        name: Unused.

    Raises:
        ValueError: If one is no matrix.
        InvalidArgumentError: If they have different numbers of rows.
    """
    columns, combined = combine_features(inputs)
    return RaggedTensor.of(join_features(columns, b"_X_"), (combined,))


def cross_hashed(
    inputs: Sequence[Any], num_buckets: int = 0, hash_key: int | None = None, name: str | None = None
) -> Any:
    """Return, for each row, hashes of all combinations of one value of each input, int64.

    See https://www.tensorflow.org/api_docs/python/tf/ragged/cross_hashed.

    Args:
        inputs: Matrices of texts or integers: ragged, sparse or others.
        num_buckets: How many numbers there are; 0 for as many as int64 has from zero on.
        hash_key: What the hashes begin with.
        name: Unused.

    Raises:
        ValueError: If one is no matrix.
        InvalidArgumentError: If they have different numbers of rows, or `num_buckets` is negative.
    """
    columns, combined = combine_features(inputs)
    return RaggedTensor.of(hash_features(columns, num_buckets, hash_key), (combined,))


def combine_features(inputs: Sequence[Any]) -> tuple[list[np.ndarray], RowPartition]:
    """Return the values of each input in all combinations, those of the last one changing fastest, and their rows."""
    if isinstance(inputs, Ragged) or not isinstance(inputs, list | tuple):
        raise TypeError(f"inputs must be a list of tensors, got {inputs!r}.")
    rows = [_as_rows(one) for one in inputs]
    if len({partition.nrows for _, partition in rows}) > 1:
        raise invalid("inputs must all have the same batch dimension size.")
    lengths = np.prod([partition.lengths for _, partition in rows], axis=0, dtype=np.int64)
    combined = RowPartition.of_lengths(lengths)
    number = combined.columns
    columns = []
    for values, partition in reversed(rows):
        width = np.maximum(partition.lengths[combined.rowids], 1)
        columns.append(values[partition.starts[combined.rowids] + number % width])
        number = number // width
    return columns[::-1], combined


def join_features(columns: Sequence[np.ndarray], separator: bytes) -> HostTensor:
    """Return the values of columns as texts, those of each combination joined."""
    texts = [
        column.tolist() if column.dtype == object else [b"%d" % number for number in column.tolist()]
        for column in columns
    ]
    return make_strings(map(separator.join, zip(*texts, strict=True)), (len(texts[0]),))


def hash_features(columns: Sequence[np.ndarray], num_buckets: int, hash_key: int | None) -> Any:
    """Return a hash of each combination: the fingerprints of its values, one mixed into the other."""
    if num_buckets < 0:
        raise invalid(f"Value for attr 'num_buckets' of {num_buckets} must be at least minimum 0")
    hashes = np.full(len(columns[0]), _HASH_KEY if hash_key is None else hash_key, np.uint64)
    for column in columns:
        prints = (
            np.fromiter(map(farmhash.fingerprint64, column.tolist()), np.uint64, len(column))
            if column.dtype == object
            else column.astype(np.int64).view(np.uint64)
        )
        hashes = _mix(hashes, prints)
    return convert_to_tensor((hashes % np.uint64(num_buckets or _LARGEST)).astype(np.int64))


def _mix(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return fingerprints of pairs of fingerprints.

    Ref: https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/platform/fingerprint.h
    """
    shift = lambda number: number ^ (number >> np.uint64(47))
    mixed = (first ^ _FACTOR) ^ (shift(second * _FACTOR) * _FACTOR)
    return shift(shift(mixed * _FACTOR) * _FACTOR)


def _as_rows(given: Any) -> tuple[np.ndarray, RowPartition]:
    """Return the values of a matrix, and its rows."""
    if isinstance(given, SparseTensor):
        rows = np.asarray(value_of(given.indices, NOT_TRACED))[:, 0]
        values, partition = given.values, RowPartition.of_lengths(np.bincount(rows, minlength=int(given.shape[0])))
    elif isinstance(given, Ragged):
        if given.rank != 2:
            raise ValueError("tf.ragged.cross only supports inputs with rank=2")
        values, partition = given.flat_values, given.outer
    else:
        dense = convert_to_tensor(given)
        if np.ndim(dense) != 2:
            raise ValueError("tf.ragged.cross only supports inputs with rank=2")
        values, partition = dense.reshape(-1), RowPartition.uniform(*np.shape(dense))
    known = np.asarray(value_of(values, NOT_TRACED))
    if known.dtype.kind not in "iuO":
        raise ValueError(
            f"Unexpected dtype for inputs: {known.dtype}. tf.ragged.cross takes texts and integers; use `tf.cast`."
        )
    return known, partition
