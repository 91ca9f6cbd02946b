"""Elements as TensorFlow's records of saved datasets have them: a serialized tensor for each part.

Sparse and ragged tensors are variants there, messages in a message: `tensorflow/core/kernels/serialize_sparse_op.cc`,
`ragged_tensor_variant.cc`, `tensorflow/core/framework/variant_tensor_data.cc`.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np
from google.protobuf.message import DecodeError

from tfdist_jax.compat.tensorflow._platform._errors import DataLossError, InvalidArgumentError
from tfdist_jax.compat.tensorflow._tensors._shape import TensorSpec
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensorSpec
from tfdist_jax.compat.tensorflow.data import _elements
from tfdist_jax.compat.tensorflow.data._element_parts import ElementParts, arrays_of, part_of
from tfdist_jax.compat.tensorflow.io import _messages, _varints
from tfdist_jax.compat.tensorflow.io._tensor_messages import (
    array_of,
    content_head,
    decode_array,
    decode_strings,
    dtype_number,
    encode_array,
    encode_strings,
)

_VARIANT = 21
_SPARSE, _RAGGED = "tensorflow::Tensor", "RaggedTensorVariant"


def encode_element(parts: ElementParts, element: Any) -> Iterator[bytes]:
    """Yield the records of an element."""
    for spec, part in zip(parts.specs, parts.columns(element), strict=True):
        if part is not None:
            yield _encode_part(spec, part)


def _encode_part(spec: Any, part: Any) -> bytes:
    arrays = arrays_of(spec, part)
    if isinstance(spec, TensorSpec):
        return encode_array(arrays[0])
    if isinstance(spec, SparseTensorSpec):
        return _encode_variants((3,), [_variant(_SPARSE, [array]) for array in arrays])
    values, *splits = arrays
    return _encode_variants((), [_variant(_RAGGED, [*splits, values])])


def _variant(name: str, arrays: Sequence[np.ndarray]) -> bytes:
    message = _messages.VariantTensorDataProto(type_name=name)
    message.tensors.extend(_messages.TensorProto.FromString(encode_array(array)) for array in arrays)
    return message.SerializeToString()


def _encode_variants(shape: Sequence[int], variants: list[bytes]) -> bytes:
    message = _messages.TensorProto(dtype=_VARIANT, tensor_content=b"".join(encode_strings(variants)))
    message.tensor_shape.SetInParent()
    for size in shape:
        message.tensor_shape.dim.add(size=size)
    return message.SerializeToString()


@final
class ElementDecoder:
    """Makes elements of records."""

    def __init__(self, parts: ElementParts) -> None:
        """Make elements of these parts."""
        self._parts = parts
        self._kept = [spec for spec in parts.specs if not isinstance(spec, _elements.NoneTensorSpec)]
        self._heads = [_head(spec) for spec in self._kept]
        self.record_count = len(self._kept)
        """How many records an element is."""

    def decode(self, records: Sequence[bytes]) -> Any:
        """Return the element of so many records.

        Raises:
            DataLossError: If they hold something else.
        """
        try:
            found = map(self._decode_part, range(len(self._kept)), records)
            return self._parts.join(
                [None if isinstance(spec, _elements.NoneTensorSpec) else next(found) for spec in self._parts.specs]
            )
        except (InvalidArgumentError, DecodeError, ValueError) as error:
            raise DataLossError(None, None, f"A record is no element of {self._kept}: {error}") from error

    def _decode_part(self, number: int, record: bytes) -> Any:
        head, dtype, shape = self._heads[number]
        if head is not None and record.startswith(head):
            return np.frombuffer(record, dtype, offset=len(head)).reshape(shape)
        return _decode_part(self._kept[number], record)


def _head(spec: Any) -> tuple[bytes | None, Any, Any]:
    """Return the bytes before a tensor's content, which are the same for all of one shape, with its type and shape."""
    is_known = isinstance(spec, TensorSpec) and spec.shape.is_fully_defined() and spec.dtype.name != "string"
    if not is_known:
        return None, None, None
    shape, dtype = tuple(size or 0 for size in spec.shape.as_list()), np.dtype(spec.dtype.as_numpy_dtype)
    length = math.prod(shape) * dtype.itemsize
    return (
        (content_head(spec.dtype.name, shape) + b'"' + _varints.encode(length), dtype, shape)
        if length
        else (None, None, None)
    )


def _decode_part(spec: Any, record: bytes) -> Any:
    message = _messages.TensorProto.FromString(record)
    if message.dtype == _VARIANT:
        return part_of(spec, _variant_arrays(spec, message))
    array = decode_array(record)
    if message.dtype != dtype_number(spec.dtype.name) or not spec.shape.is_compatible_with(array.shape):
        raise InvalidArgumentError(None, None, f"Expected {spec}, got shape {array.shape} and {array.dtype}.")
    return part_of(spec, [array])


def _variant_arrays(spec: Any, message: Any) -> list[np.ndarray]:
    is_sparse = isinstance(spec, SparseTensorSpec)
    variants = [
        _messages.VariantTensorDataProto.FromString(text)
        for text in decode_strings(message.tensor_content, 3 if is_sparse else 1)
    ]
    name = _SPARSE if is_sparse else _RAGGED
    if any(variant.type_name != name for variant in variants):
        raise InvalidArgumentError(None, None, f"Expected {spec}, got {[variant.type_name for variant in variants]}.")
    arrays = [array_of(tensor) for variant in variants for tensor in variant.tensors]
    return arrays if is_sparse else [arrays[-1], *arrays[:-1]]
