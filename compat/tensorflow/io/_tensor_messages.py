"""`tf.io.serialize_tensor` and `parse_tensor`: tensors as protocol buffers."""

import base64
import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._ops._host_operation import strings_of
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.io import _messages, _varints

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


def dtype_number(name: str) -> int:
    """Return TensorFlow's number of a type, by its name."""
    return _NUMBERS[name][0]


def dtype_name(number: int) -> str | None:
    """Return the name of the type that has a number of TensorFlow's; None if there is none here."""
    return _NAMES.get(number)


def encode_array(array: np.ndarray) -> bytes:
    """Return an array as a serialized `TensorProto`, its values as they lie in memory; strings one behind the other, as bytes.

    TensorFlow's `Tensor::AsProtoTensorContent`, byte for byte.
    """
    if array.dtype.kind not in "OSU":
        return _number_head(array.dtype, array.shape) + array.tobytes()
    content = b"".join(encode_strings(array.reshape(-1).tolist()))
    head = content_head("string", array.shape)
    return b"".join((head, _content_size(len(content)), content)) if content else head


@functools.lru_cache(maxsize=256)
def _number_head(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """Return what comes before the bytes of an array of numbers, of which each has the same size."""
    size = math.prod(shape) * dtype.itemsize
    return content_head(as_dtype(dtype).name, shape) + (_content_size(size) if size else b"")


def _content_size(size: int) -> bytes:
    return b'"' + _varints.encode(size)


@functools.lru_cache(maxsize=256)
def content_head(kind: str, shape: tuple[int, ...]) -> bytes:
    """Return what of a serialized `TensorProto` comes before its content."""
    message = _messages.TensorProto(dtype=_NUMBERS[kind][0])
    message.tensor_shape.SetInParent()
    for size in shape:
        message.tensor_shape.dim.add(size=size)
    return message.SerializeToString()


def encode_strings(texts: list[bytes]) -> Iterator[bytes]:
    """Yield strings as contents hold them: the lengths of all, then the bytes of all."""
    yield from (_varints.encode(len(text)) for text in texts)
    yield from texts


def decode_strings(content: bytes, count: int) -> list[bytes]:
    """Return the strings of a content.

    Raises:
        InvalidArgumentError: If it does not hold so many.
    """
    lengths, at = [], 0
    for _ in range(count):
        try:
            length, at = _varints.decode(content, at)
        except (IndexError, ValueError):
            raise invalid("The content of a TensorProto is damaged within the length of a string.") from None
        lengths.append(length)
    if at + sum(lengths) != len(content):
        raise invalid(f"The content of a TensorProto has {len(content)} bytes, which are not {count} strings.")
    texts = []
    for length in lengths:
        texts.append(content[at : at + length])
        at += length
    return texts


def decode_array(serialized: bytes, what: str = "a serialized tensor") -> np.ndarray:
    """Return the array of a serialized `TensorProto`; `what` names it in errors.

    Raises:
        InvalidArgumentError: If it is none.
    """
    try:
        message = _messages.TensorProto.FromString(serialized)
    except DecodeError:
        raise invalid(f"Could not parse {what} as a TensorProto.") from None
    if message.dtype not in _NAMES:
        raise invalid(
            f"Could not parse {what} as a TensorProto of a type that is known: its number is {message.dtype}."
        )
    return array_of(message)


def array_of(message: Any) -> np.ndarray:
    """Return the values of a `TensorProto`.

    Raises:
        InvalidArgumentError: If they do not fill its shape.
    """
    kind = _NAMES[message.dtype]
    shape = tuple(dimension.size for dimension in message.tensor_shape.dim)
    count = int(np.prod(shape, dtype=np.int64))
    if kind == "string":
        content = message.tensor_content
        texts = decode_strings(content, count) if content else list(message.string_val)
        values = np.empty(len(texts), object)
        values[:] = texts
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
