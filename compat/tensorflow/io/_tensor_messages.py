"""`tf.io.serialize_tensor` and `parse_tensor`: tensors as protocol buffers."""

import base64
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._ops._host_operation import strings_of
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.io import _messages

# TensorFlow's numbers of types, with the field in which a message may list values; complex ones are pairs there.
_NUMBERS = {
    "float32": (1, "float_val"),
    "float64": (2, "double_val"),
    "int32": (3, "int_val"),
    "uint8": (4, "int_val"),
    "int16": (5, "int_val"),
    "int8": (6, "int_val"),
    "string": (7, "string_val"),
    "complex64": (8, "scomplex_val"),
    "int64": (9, "int64_val"),
    "bool": (10, "bool_val"),
    "bfloat16": (14, "half_val"),
    "uint16": (17, "int_val"),
    "complex128": (18, "dcomplex_val"),
    "float16": (19, "half_val"),
    "uint32": (22, "uint32_val"),
    "uint64": (23, "uint64_val"),
}
_NAMES = {number: name for name, (number, _) in _NUMBERS.items()}
# What messages call them.
_SAID = {"float32": "float", "float64": "double", "float16": "half"}


def serialize_tensor(tensor: Any, name: str | None = None) -> HostTensor:
    """Return a tensor as a serialized `TensorProto`, a string."""
    given = convert_to_tensor(tensor)
    kind = as_dtype(given.dtype).name
    message = _messages.TensorProto(dtype=_NUMBERS[kind][0])
    shape = message.tensor_shape
    shape.SetInParent()
    for size in np.shape(given):
        shape.dim.add(size=size)
    array = np.asarray(given)
    if kind == "string":
        message.string_val.extend(array.reshape(-1).tolist())
    else:
        message.tensor_content = array.tobytes()
    return convert_to_tensor(message.SerializeToString())


def parse_tensor(serialized: Any, out_type: Any, name: str | None = None) -> Any:
    """Return the tensor of a serialized `TensorProto`.

    Raises:
        InvalidArgumentError: If the string is none, or its tensor has another type.
    """
    text, wanted = strings_of(serialized), as_dtype(out_type)
    if text.ndim:
        raise invalid(f"Expected `serialized` to be a scalar, got shape: [{','.join(map(str, text.shape))}]")
    try:
        message = _messages.TensorProto.FromString(text.item())
    except DecodeError:
        message = _messages.TensorProto()
    kind = _NAMES.get(message.dtype)
    if kind is None:
        encoded = base64.b64encode(text.item()).decode()
        raise invalid(f"Could not parse `serialized` as TensorProto, base64: {encoded}")
    if kind != wanted.name:
        parsed, asked = (_SAID.get(each, each) for each in (kind, wanted.name))
        raise invalid(f"Type mismatch between parsed tensor ({parsed}) and dtype ({asked})")
    return convert_to_tensor(array_of(message), wanted)


def array_of(message: Any) -> np.ndarray:
    """Return the values of a `TensorProto`.

    Raises:
        InvalidArgumentError: If they do not fill its shape.
    """
    kind = _NAMES[message.dtype]
    shape = tuple(dimension.size for dimension in message.tensor_shape.dim)
    count = int(np.prod(shape, dtype=np.int64))
    if kind == "string":
        values = np.empty(len(message.string_val), object)
        values[:] = list(message.string_val)
    elif message.tensor_content:
        values = np.frombuffer(message.tensor_content, as_dtype(kind).as_numpy_dtype)
    else:
        values = _listed(message, kind)
    if len(values) > count or (count and not len(values)):
        raise invalid(f"A TensorProto of shape {list(shape)} has {len(values)} values.")
    # The last one stands for all that would follow.
    return (np.pad(values, (0, count - len(values)), "edge") if len(values) < count else values).reshape(shape)


def _listed(message: Any, kind: str) -> np.ndarray:
    listed, dtype = getattr(message, _NUMBERS[kind][1]), np.dtype(as_dtype(kind).as_numpy_dtype)
    if kind in ("float16", "bfloat16"):
        return np.array(listed, np.uint16).view(dtype)
    if dtype.kind == "c":
        return np.array(listed, np.float64).view(np.complex128).astype(dtype)
    return np.array(listed).astype(dtype)
