"""`tf.io.decode_raw`, `decode_compressed`, `decode_base64`, `decode_json_example`: what strings hold."""

import base64
import binascii
import json
import re
from typing import Any

import numpy as np
from google.protobuf import json_format

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._ops._host_operation import map_strings, strings_of
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._host_part import computes_rows
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.io import _messages
from tfdist_jax.compat.tensorflow.io._compression import compression_of, inflate

_RAW_TYPES = [
    "float16",
    "float32",
    "float64",
    "int32",
    "uint16",
    "uint8",
    "int16",
    "int8",
    "int64",
    "complex64",
    "complex128",
    "bool",
    "bfloat16",
]
_NO_BASE64 = re.compile(rb"[^A-Za-z0-9_=-]")


@computes_rows
def decode_raw(
    input_bytes: Any,
    out_type: Any,
    little_endian: bool = True,
    fixed_length: int | None = None,
    name: str | None = None,
) -> Any:
    """Return the numbers whose bytes strings hold.

    Args:
        input_bytes: Strings `[...]` of one length.
        out_type: The type of the numbers.
        little_endian: Whether the lowest byte of each number comes first.
        fixed_length: Bytes that are taken of each string: longer ones are cut, shorter ones filled up with zeros.
        name: Unused.

    Returns:
        Numbers `[..., n]`.

    Raises:
        InvalidArgumentError: If lengths differ, or no whole numbers fill them.
    """
    texts, dtype = strings_of(input_bytes), as_dtype(out_type)
    if dtype.name not in _RAW_TYPES:
        raise invalid(
            f"Value for attr 'out_type' of {dtype.name} is not in the list of allowed values: {', '.join(_RAW_TYPES)}"
        )
    kind = np.dtype(dtype.as_numpy_dtype)
    items: list[bytes] = texts.reshape(-1).tolist()
    if fixed_length is not None:
        if fixed_length <= 0 or fixed_length % kind.itemsize:
            raise invalid(f"fixed_length ({fixed_length}) must be a multiple of the size of out_type ({kind.itemsize})")
        items = [item[:fixed_length].ljust(fixed_length, b"\0") for item in items]
    lengths = [len(item) for item in items]
    other = next((i for i, length in enumerate(lengths) if length != lengths[0]), None)
    if other is not None:
        raise invalid(
            "DecodeRaw requires input strings to all be the same size, but element "
            f"{other} has size {lengths[other]} != {lengths[0]}"
        )
    length = lengths[0] if lengths else 0
    if length % kind.itemsize:
        raise invalid(
            f"Input to DecodeRaw has length {length} that is not a multiple of {kind.itemsize}, the size of {dtype.name}"
        )
    numbers = np.frombuffer(b"".join(items), kind if little_endian else kind.newbyteorder(">"))
    return convert_to_tensor(numbers.astype(kind).reshape(*texts.shape, length // kind.itemsize), dtype)


@computes_rows
def decode_compressed(bytes: Any, compression_type: Any = "", name: str | None = None) -> HostTensor:
    """Return strings as they were before they were compressed: "ZLIB", "GZIP", or not at all.

    Raises:
        InvalidArgumentError: If there is no such compression.
        DataLossError: If they are damaged.
    """
    compression = compression_of(compression_type)
    return map_strings(lambda text: inflate(text, compression), strings_of(bytes))


@computes_rows
def encode_base64(input: Any, pad: bool = False, name: str | None = None) -> HostTensor:
    """Return strings in web-safe base64, filled up with "=" if `pad`."""

    def encode(text: bytes) -> bytes:
        encoded = base64.urlsafe_b64encode(text)
        return encoded if pad else encoded.rstrip(b"=")

    return map_strings(encode, strings_of(input))


@computes_rows
def decode_base64(input: Any, name: str | None = None) -> HostTensor:
    """Return what strings in web-safe base64 stand for, filled up or not.

    Raises:
        InvalidArgumentError: If a string is no base64.
    """

    def decode(text: bytes) -> bytes:
        if _NO_BASE64.search(text):
            raise invalid("Invalid character found in base64.")
        bare = text.rstrip(b"=")
        if len(bare) % 4 == 1:
            raise invalid("Base64 string length cannot be 1 modulo 4.")
        try:
            return base64.urlsafe_b64decode(bare + b"=" * (-len(bare) % 4))
        except binascii.Error as error:
            raise invalid(f"Invalid base64: {error}") from None

    return map_strings(decode, strings_of(input))


def decode_json_example(json_examples: Any, name: str | None = None) -> HostTensor:
    """Return `tf.train.Example`s that are written as JSON, serialized.

    Raises:
        InvalidArgumentError: If a string is not JSON, or no example.
    """

    def decode(text: bytes) -> bytes:
        try:
            return json_format.ParseDict(json.loads(text), _messages.Example()).SerializeToString()
        except (ValueError, json_format.ParseError) as error:
            raise invalid(f"Error while parsing JSON: {error}") from None

    return map_strings(decode, strings_of(json_examples))
