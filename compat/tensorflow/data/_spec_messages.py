"""Specs of elements as TensorFlow's messages, by which files of elements say what they hold.

Ref: https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/protobuf/struct.proto
"""

import collections
import functools
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.message import DecodeError

from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, TensorSpec
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensorSpec
from tfdist_jax.compat.tensorflow.data._elements import NoneTensorSpec
from tfdist_jax.compat.tensorflow.io import _messages
from tfdist_jax.compat.tensorflow.io._tensor_messages import dtype_name, dtype_number

# TensorFlow's numbers of the kinds of specs.
_SPARSE, _RAGGED, _REGISTERED = 1, 3, 12
_NONE = "tf.NoneTensorSpec"


def encode_spec(spec: Any) -> bytes:
    """Return the spec of an element as a serialized `StructuredValue`, dictionaries by their keys' order.

    Raises:
        TypeError: If something in it is no tensor: a dataset, for example.
    """
    return _encode(spec).SerializeToString(deterministic=True)


def decode_spec(serialized: bytes) -> Any:
    """Return the spec of `encode_spec`, or of TensorFlow's nested structure coder; dictionaries are in their keys' order.

    Raises:
        ValueError: If the bytes are none.
        NotImplementedError: If there is something in it that elements here do not have.
    """
    try:
        return _decode(_messages.StructuredValue.FromString(serialized))
    except DecodeError:
        raise ValueError("no spec of elements") from None


def fits(spec: Any, other: Any) -> bool:
    """Tell whether elements may be of both specs: of one structure and the same types, in shapes that do not contradict."""
    if isinstance(spec, Mapping) or isinstance(other, Mapping):
        both = isinstance(spec, Mapping) and isinstance(other, Mapping) and spec.keys() == other.keys()
        return both and all(fits(part, other[key]) for key, part in spec.items())
    if _is_structure(spec) or _is_structure(other):
        both = _is_structure(spec) and _is_structure(other) and len(spec) == len(other)
        return both and all(map(fits, spec, other))
    if type(spec) is not type(other):
        return False
    return spec == other or (hasattr(spec, "is_compatible_with") and spec.is_compatible_with(other))


def _is_structure(spec: Any) -> bool:
    return isinstance(spec, tuple) and not isinstance(spec, TensorShape)


def _encode(spec: Any) -> Any:
    message = _messages.StructuredValue()
    if isinstance(spec, Mapping):
        _encode_mapping(message, spec)
    elif hasattr(spec, "_fields"):
        message.named_tuple_value.name = type(spec).__name__
        for name, part in zip(spec._fields, spec, strict=True):
            message.named_tuple_value.values.add(key=name).value.CopyFrom(_encode(part))
    elif _is_structure(spec):
        message.tuple_value.SetInParent()
        message.tuple_value.values.extend(map(_encode, spec))
    elif isinstance(spec, TensorSpec):
        message.tensor_spec_value.dtype = dtype_number(spec.dtype.name)
        _fill_shape(message.tensor_spec_value.shape, spec.shape)
    else:
        _encode_composite(message, spec)
    return message


def _encode_mapping(message: Any, spec: Mapping[Any, Any]) -> None:
    message.dict_value.SetInParent()
    for key, part in spec.items():
        if not isinstance(key, str):
            raise TypeError(f"Dictionaries that are written to files have strings for keys, got {key!r}.")
        message.dict_value.fields[key].CopyFrom(_encode(part))


def _encode_composite(message: Any, spec: Any) -> None:
    proto = message.type_spec_value
    if isinstance(spec, SparseTensorSpec):
        _describe(proto, _SPARSE, "SparseTensorSpec", [_shape(spec.shape), _dtype(spec.dtype)], 3)
    elif isinstance(spec, NoneTensorSpec):
        _describe(proto, _REGISTERED, _NONE, [], 0)
    elif hasattr(spec, "ragged_rank"):
        state = [
            _shape(spec.shape),
            _dtype(spec.dtype),
            _messages.StructuredValue(int64_value=spec.ragged_rank),
            _dtype(spec.row_splits_dtype),
        ]
        _describe(proto, _RAGGED, "RaggedTensorSpec", state, spec.ragged_rank + 1)
    else:
        raise TypeError(
            f"Elements that are written to files are made of tensors, sparse and ragged ones and None, got {spec!r}. "
            "Datasets in elements, as `window` makes them, become tensors by `flat_map` and `batch`."
        )


def _describe(proto: Any, kind: int, name: str, state: list[Any], components: int) -> None:
    proto.type_spec_class, proto.type_spec_class_name, proto.num_flat_components = kind, name, components
    proto.type_state.tuple_value.SetInParent()
    proto.type_state.tuple_value.values.extend(state)


def _shape(shape: TensorShape) -> Any:
    message = _messages.StructuredValue()
    _fill_shape(message.tensor_shape_value, shape)
    return message


def _fill_shape(message: Any, shape: TensorShape) -> None:
    message.SetInParent()
    if shape.rank is None:
        message.unknown_rank = True
        return
    for size in shape.as_list():
        message.dim.add(size=-1 if size is None else size)


def _dtype(dtype: Any) -> Any:
    return _messages.StructuredValue(tensor_dtype_value=dtype_number(dtype.name))


def _decode(message: Any) -> Any:
    kind = message.WhichOneof("kind")
    way = _WAYS.get(kind)
    if way is None:
        raise NotImplementedError(f"a structure with {kind or 'something unknown'} in it")
    return way(getattr(message, kind))


def _decode_named(message: Any) -> Any:
    names = tuple(pair.key for pair in message.values)
    return _class_of(message.name, names)(*(_decode(pair.value) for pair in message.values))


@functools.cache
def _class_of(name: str, fields: tuple[str, ...]) -> Any:
    return collections.namedtuple(name, fields)


def _decode_shape(message: Any) -> TensorShape:
    if message.unknown_rank:
        return TensorShape(None)
    return TensorShape([None if dim.size < 0 else dim.size for dim in message.dim])


def _decode_dtype(number: int) -> Any:
    name = dtype_name(number)
    if name is None:
        raise NotImplementedError(f"tensors of the type with TensorFlow's number {number}")
    return as_dtype(name)


def _decode_composite(message: Any) -> Any:
    kind, state = message.type_spec_class, [_decode(part) for part in message.type_state.tuple_value.values]
    if kind == _SPARSE:
        return SparseTensorSpec(*state)
    if kind == _RAGGED:
        # Ragged tensors take a fiftieth of the facade's time to start: few programs have them.
        from tfdist_jax.compat.tensorflow.ragged._ragged_tensor import RaggedTensorSpec

        return RaggedTensorSpec(*state)
    if kind == _REGISTERED and message.type_spec_class_name == _NONE:
        return NoneTensorSpec()
    raise NotImplementedError(f"parts of the type {message.type_spec_class_name or kind}")


_WAYS: dict[str | None, Callable[[Any], Any]] = {
    "tensor_spec_value": lambda message: TensorSpec(_decode_shape(message.shape), _decode_dtype(message.dtype)),
    "type_spec_value": _decode_composite,
    "tuple_value": lambda message: tuple(map(_decode, message.values)),
    "dict_value": lambda message: {key: _decode(message.fields[key]) for key in sorted(message.fields)},
    "named_tuple_value": _decode_named,
    "int64_value": lambda number: number,
    "tensor_shape_value": _decode_shape,
    "tensor_dtype_value": _decode_dtype,
}
