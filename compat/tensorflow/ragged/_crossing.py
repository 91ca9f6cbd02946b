"""`tf.ragged.cross`: all combinations of the values of features, row by row."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid, value_of
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.ragged._base import Ragged
from tfdist_jax.compat.tensorflow.ragged._ragged_tensor import RaggedTensor
from tfdist_jax.compat.tensorflow.ragged._row_partition import NOT_TRACED, RowPartition


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
    if isinstance(inputs, Ragged) or not isinstance(inputs, list | tuple):
        raise TypeError(f"inputs must be a list of tensors, got {inputs!r}.")
    rows = [_as_rows(one) for one in inputs]
    if len({partition.nrows for _, partition in rows}) > 1:
        raise invalid("inputs must all have the same batch dimension size.")
    lengths = np.prod([partition.lengths for _, partition in rows], axis=0, dtype=np.int64)
    combined = RowPartition.of_lengths(lengths)
    number = combined.columns
    texts: list[list[bytes]] = []
    for values, partition in reversed(rows):  # The last input's values change fastest.
        width = np.maximum(partition.lengths[combined.rowids], 1)
        texts.append(values[partition.starts[combined.rowids] + number % width].tolist())
        number = number // width
    crossed = np.empty(combined.nvals, object)
    crossed[:] = [b"_X_".join(parts) for parts in zip(*reversed(texts), strict=True)]
    return RaggedTensor.of(HostTensor.of(crossed), (combined,))


def _as_rows(given: Any) -> tuple[np.ndarray, RowPartition]:
    """Return the values of a matrix as texts, and its rows."""
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
    if known.dtype.kind == "O":
        return known, partition
    texts = np.empty(known.size, object)
    texts[:] = [str(number).encode() for number in known.tolist()]
    return texts, partition
