"""Tensors as the bytes that lie in a checkpoint's data files."""

import itertools
import struct
from typing import Any

import google_crc32c
import ml_dtypes
import numpy as np

from tfdist_jax.compat.tensorflow.io import _varints
from tfdist_jax.compat.tensorflow.io._records import mask

STRING, VARIANT = 7, 21
# TensorFlow's numbers for the types of tensors whose bytes are as they lie in memory.
_WRITTEN = {
    1: np.float32,
    2: np.float64,
    3: np.int32,
    4: np.uint8,
    5: np.int16,
    6: np.int8,
    8: np.complex64,
    9: np.int64,
    10: np.bool_,
    14: ml_dtypes.bfloat16,
    17: np.uint16,
    18: np.complex128,
    19: np.float16,
    22: np.uint32,
    23: np.uint64,
    24: ml_dtypes.float8_e5m2,
    25: ml_dtypes.float8_e4m3fn,
    29: ml_dtypes.int4,
    30: ml_dtypes.uint4,
}
# Quantized numbers, which NumPy has no types for, are read as the integers that they are, as TensorFlow does.
_TYPES = {
    **{number: np.dtype(kind) for number, kind in _WRITTEN.items()},
    STRING: np.dtype(object),
    **{11: np.dtype(np.int8), 12: np.dtype(np.uint8), 13: np.dtype(np.int32)},
    **{15: np.dtype(np.int16), 16: np.dtype(np.uint16)},
}
_NUMBERS = {np.dtype(kind): number for number, kind in _WRITTEN.items()} | {np.dtype(object): STRING}
_LENGTH, _LONG_LENGTH, _CHECKSUM_BYTES = struct.Struct("<I"), struct.Struct("<Q"), 4


def dtype_of(number: int) -> np.dtype | None:
    """Return the NumPy type for TensorFlow's number of one; `object` for strings, None if there is none."""
    return _TYPES.get(number)


def number_of(dtype: np.dtype) -> int:
    """Return TensorFlow's number for a NumPy type.

    Raises:
        NotImplementedError: If TensorFlow has none.
    """
    if dtype not in _NUMBERS:
        raise NotImplementedError(
            f"TensorFlow's checkpoints have no type for {dtype}. Save without TFDIST_CHECKPOINT_FORMAT=tensorflow, or "
            "tf.cast the variable."
        )
    return _NUMBERS[dtype]


def encode_strings(strings: list[bytes]) -> tuple[np.ndarray, int]:
    """Return strings as bytes, and the masked checksum that belongs to them."""
    lengths = b"".join(_varints.encode(len(string)) for string in strings)
    crc, middle = _checksum_of_lengths([len(string) for string in strings])
    content = b"".join(strings)
    return np.frombuffer(lengths + middle + content, np.uint8), mask(google_crc32c.extend(crc, content))


def decode_strings(data: bytes, count: int) -> tuple[list[bytes], int]:
    """Return strings and the masked checksum that belongs to them.

    Raises:
        IndexError: If the bytes end within them.
        ValueError: If the lengths are damaged.
    """
    at, lengths = 0, []
    for _ in range(count):
        length, at = _varints.decode(data, at)
        lengths.append(length)
    crc, middle = _checksum_of_lengths(lengths)
    start = at + _CHECKSUM_BYTES
    if data[at:start] != middle or start + sum(lengths) != len(data):
        raise ValueError("the lengths of the strings are damaged")
    ends = np.cumsum([start, *lengths]).tolist()
    strings = [data[begin:end] for begin, end in itertools.pairwise(ends)]
    return strings, mask(google_crc32c.extend(crc, data[start:]))


def _checksum_of_lengths(lengths: list[int]) -> tuple[int, bytes]:
    """Return the checksum of the lengths, of which those after it begin, and its bytes between lengths and strings."""
    packed = b"".join((_LENGTH if length < 1 << 32 else _LONG_LENGTH).pack(length) for length in lengths)
    crc = google_crc32c.value(packed)
    middle = _LENGTH.pack(mask(crc))
    return google_crc32c.extend(crc, middle), middle


def bytes_of(array: np.ndarray) -> np.ndarray:
    """Return an array's bytes in little-endian order, without copying what lies so already."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)


def strings_of(array: np.ndarray) -> list[bytes]:
    """Return an array of strings as a list of bytes."""
    return [_as_bytes(value) for value in array.reshape(-1).tolist()]


def _as_bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
