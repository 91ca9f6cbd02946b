"""The keys under which the parts of partitioned variables lie: sorted as bytes, they are sorted by name and place.

Ref: https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/util/saved_tensor_slice_util.cc
"""

from collections.abc import Sequence

_ESCAPES = {0x00: b"\x00\xff", 0xFF: b"\xff\x00"}
_END_OF_STRING = b"\x00\x01"
WHOLE = -1
"""The length of a part that reaches over a whole dimension."""


def slice_key(name: str, extents: Sequence[tuple[int, int]]) -> bytes:
    """Return the key of a part of a variable.

    Args:
        name: The variable.
        extents: Start and length in each dimension.
    """
    encoded_name = b"".join(_ESCAPES.get(byte, bytes([byte])) for byte in name.encode())
    numbers = [number for extent in extents for number in extent]
    return b"".join(
        (_unsigned(0), encoded_name, _END_OF_STRING, _unsigned(len(extents)), *(_signed(number) for number in numbers))
    )


def _unsigned(number: int) -> bytes:
    size = (number.bit_length() + 7) // 8
    return bytes([size]) + number.to_bytes(size, "big")


def _signed(number: int) -> bytes:
    """Return a number in `size` bytes, whose first `size` bits are the opposite of the sign."""
    size = (~number if number < 0 else number).bit_length() // 7 + 1
    header = (1 << size) - 1 << 7 * size
    return (number & (1 << 8 * size) - 1 ^ header).to_bytes(size, "big")
