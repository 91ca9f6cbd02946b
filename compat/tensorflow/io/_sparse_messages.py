"""`tf.io.serialize_sparse` and its like: sparse tensors as strings, three for each.

The bytes are those of TensorFlow's kernels (`serialize_sparse_op.cc`, `deserialize_sparse_string_op.cc`), so that both read them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._ops._host_operation import make_strings, strings_of
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype, string
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensor, sparse
from tfdist_jax.compat.tensorflow.io._tensor_messages import decode_array, encode_array


def serialize_sparse(sp_input: Any, out_type: Any = string, name: str | None = None) -> HostTensor:
    """Return a sparse tensor as strings `[3]`: its indices, values and shape, each a serialized `TensorProto`.

    Args:
        sp_input: A sparse tensor.
        out_type: `tf.string`.
        name: Unused.

    Raises:
        TypeError: If it is none.
        NotImplementedError: If `out_type` is another type: there are no variants.
    """
    _require_strings(out_type)
    return make_strings(_encode(*_arrays(sp_input)), (3,))


def serialize_many_sparse(sp_input: Any, out_type: Any = string, name: str | None = None) -> HostTensor:
    """Return the `n` entries of a sparse tensor along its first axis as strings `[n, 3]`, see `serialize_sparse`.

    Raises:
        TypeError: If it is no sparse tensor.
        InvalidArgumentError: If it has less than two axes.
        NotImplementedError: If `out_type` is not `tf.string`.
    """
    _require_strings(out_type)
    indices, values, shape = _arrays(sp_input)
    if len(shape) < 2:
        raise invalid(f"Rank of input SparseTensor should be > 1, but saw rank: {len(shape)}")
    parts = []
    for number in range(shape[0]):
        places = np.flatnonzero(indices[:, 0] == number)
        parts += _encode(indices[places, 1:], values[places], shape[1:])
    return make_strings(parts, (int(shape[0]), 3))


def deserialize_many_sparse(
    serialized_sparse: Any, dtype: Any, rank: int | None = None, name: str | None = None
) -> SparseTensor:
    """Return the sparse tensor of `n` serialized ones, with a first axis for them; its sizes are those of the largest.

    Args:
        serialized_sparse: Strings `[n, 3]` of `serialize_many_sparse`, or of `serialize_sparse`, stacked.
        dtype: The type of the values.
        rank: How many axes the result has, the first one counted, if that is to be checked.
        name: Unused.

    Raises:
        InvalidArgumentError: If the strings are none of these, or of other types or different numbers of axes.
        ValueError: If the result has another `rank`.
    """
    texts, wanted = strings_of(serialized_sparse), as_dtype(dtype)
    if not texts.ndim or texts.shape[-1] != 3:
        raise invalid(f"Serialized sparse should have 3 as the last dimension {_sizes(texts.shape)}")
    if not texts.size:
        raise invalid(
            f"Serialized sparse should have at least 1 serialized tensor, but has a zero dimension {_sizes(texts.shape)}"
        )
    found = [_decode(row, number, wanted) for number, row in enumerate(texts.reshape(-1, 3).tolist())]
    _require_same_rank([len(shape) for _, _, shape in found])
    result = SparseTensor(*found[0]) if texts.ndim == 1 else _join(found)
    if rank is not None and len(result.shape) != rank:
        raise ValueError(f"`rank` is {rank}, but the sparse tensor has the shape {result.shape}.")
    return result


def _join(parts: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> SparseTensor:
    sizes = np.max([shape for _, _, shape in parts], axis=0)
    indices = [np.insert(part, 0, number, axis=1) for number, (part, _, _) in enumerate(parts)]
    return SparseTensor(
        np.concatenate(indices), np.concatenate([part for _, part, _ in parts]), [len(parts), *sizes.tolist()]
    )


def _require_strings(out_type: Any) -> None:
    if as_dtype(out_type) != string:
        raise NotImplementedError(
            f"Sparse tensors are serialized as strings here, not as {out_type!r}. Leave `out_type` out: "
            "`tf.io.deserialize_many_sparse` reads them."
        )


def _arrays(sp_input: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    indices, values, shape = sparse(sp_input).parts()
    return np.asarray(indices), np.asarray(values), np.asarray(shape)


def _encode(indices: np.ndarray, values: np.ndarray, shape: np.ndarray) -> list[bytes]:
    return [encode_array(np.ascontiguousarray(part)) for part in (indices, values, shape)]


def _decode(row: Sequence[bytes], number: int, wanted: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    indices, values, shape = (decode_array(text, f"SparseTensor[{number}]") for text in row)
    kind = "string" if values.dtype.kind == "O" else as_dtype(values.dtype).name
    if kind != wanted.name:
        raise invalid(
            f"Requested SparseTensor of type {wanted.name} but SparseTensor[{number}].values.dtype() == {kind}"
        )
    fits = shape.ndim == values.ndim == 1 and indices.shape == (len(values), len(shape))
    if not fits or {indices.dtype, shape.dtype} != {np.dtype(np.int64)}:
        raise invalid(
            f"Expected SparseTensor[{number}] to have int64 indices [n, rank], values [n] and an int64 shape [rank], got the shapes "
            f"{indices.shape}, {values.shape} and {shape.shape}."
        )
    return indices, values, shape


def _require_same_rank(ranks: Sequence[int]) -> None:
    for number, rank in enumerate(ranks):
        if rank != ranks[0]:
            raise invalid(
                f"Inconsistent shape across SparseTensors: rank prior to SparseTensor[{number}] was: {ranks[0]} but rank of "
                f"SparseTensor[{number}] is: {rank}"
            )


def _sizes(shape: Sequence[int]) -> str:
    return f"[{','.join(map(str, shape))}]"
