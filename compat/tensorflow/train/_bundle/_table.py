"""LevelDB's table format: sorted keys and their values in blocks, each with a checksum.

Ref: https://github.com/google/leveldb/blob/main/doc/table_format.md
"""

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

from tfdist_jax import DataLossError as DamagedError
from tfdist_jax.compat.tensorflow.io import _varints
from tfdist_jax.compat.tensorflow.io._records import checksum

_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_HANDLES_BYTES = 40
FOOTER_BYTES = _HANDLES_BYTES + len(_MAGIC)
_TRAILER_BYTES = 5  # The kind of compression and a checksum follow each block.
_UNCOMPRESSED, _SNAPPY = 0, 1
_INTEGER = struct.Struct("<I")
# TensorFlow's own choices.
_BLOCK_BYTES = 256 * 1024
_KEYS_BETWEEN_RESTARTS = 16


class _Handle(NamedTuple):
    """Where a block lies."""

    offset: int
    size: int


def read_table(file: Path) -> dict[bytes, bytes]:
    """Return the values in a table by key, in the keys' order.

    Raises:
        FileNotFoundError: If there is no such file.
        DataLossError: If it is damaged.
        NotImplementedError: If its blocks are compressed.
    """
    data = file.read_bytes()
    if len(data) < FOOTER_BYTES:
        _refuse(file, len(data), f"expected a footer of {FOOTER_BYTES} bytes, but the file has only {len(data)}")
    footer = len(data) - FOOTER_BYTES
    if not data.endswith(_MAGIC):
        _refuse(file, len(data) - len(_MAGIC), f"expected the end of a table, {_MAGIC.hex()}, got {data[-8:].hex()}")
    try:
        _, behind = _decode_handle(data, footer)
        index, _ = _decode_handle(data, behind)
    except (IndexError, ValueError) as error:
        _refuse(file, footer, f"expected the places of two blocks: {error}")
    found: dict[bytes, bytes] = {}
    for _, value in _read_block(file, data, index):
        handle, _ = _decode_handle(value, 0)
        found.update(_read_block(file, data, handle))
    return found


def is_table(file: Path) -> bool:
    """Tell whether a file is a table, by its end."""
    with file.open("rb") as reader:
        size = reader.seek(0, 2)
        reader.seek(max(0, size - len(_MAGIC)))
        return reader.read() == _MAGIC


def _refuse(file: Path, offset: int, why: str) -> NoReturn:
    raise DamagedError(f"{file} is damaged at byte {offset}: {why}.")


def _decode_handle(data: bytes, at: int) -> tuple[_Handle, int]:
    offset, at = _varints.decode(data, at)
    size, at = _varints.decode(data, at)
    return _Handle(offset, size), at


def _read_block(file: Path, data: bytes, handle: _Handle) -> list[tuple[bytes, bytes]]:
    offset, end = handle.offset, handle.offset + handle.size
    trailer = data[end : end + _TRAILER_BYTES]
    if end + _TRAILER_BYTES > len(data) - FOOTER_BYTES:
        _refuse(file, offset, f"expected a block of {handle.size} bytes, which would reach into the footer")
    if checksum(data[offset : end + 1]) != trailer[1:]:
        _refuse(file, offset, f"expected a block of {handle.size} bytes with the checksum {trailer[1:].hex()}")
    if trailer[0] == _SNAPPY:
        raise NotImplementedError(
            f"{file} is compressed with Snappy, which TensorFlow's checkpoints have not been since version 1.1. Save it "
            "anew with TensorFlow."
        )
    if trailer[0] != _UNCOMPRESSED:
        _refuse(file, end, f"expected the kind of compression, 0 or 1, got {trailer[0]}")
    try:
        return list(_entries(data[offset:end]))
    except (IndexError, ValueError, struct.error) as error:
        _refuse(file, offset, f"expected keys and values: {error}")


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    (restarts,) = _INTEGER.unpack_from(block, len(block) - _INTEGER.size)
    end = len(block) - _INTEGER.size * (restarts + 1)
    if end < 0:
        raise ValueError(f"{restarts} restarts in a block of {len(block)} bytes")
    at, key = 0, b""
    while at < end:
        shared, at = _varints.decode(block, at)
        unshared, at = _varints.decode(block, at)
        length, at = _varints.decode(block, at)
        if shared > len(key) or at + unshared + length > end:
            raise ValueError(f"an entry that begins before byte {at} is longer than there is room for")
        key = key[:shared] + block[at : at + unshared]
        at += unshared
        yield key, block[at : at + length]
        at += length


def make_table(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return a table as the bytes of a file.

    Args:
        entries: Keys and values, sorted by their different keys.
    """
    file, places = bytearray(), []

    def add_block(block: list[tuple[bytes, bytes]], keys_between_restarts: int) -> bytes:
        encoded = _encode_block(block, keys_between_restarts) + bytes([_UNCOMPRESSED])
        place = _varints.encode(len(file)) + _varints.encode(len(encoded) - 1)
        file.extend(encoded + checksum(encoded))
        return place

    for block in _divide(entries):
        places.append((block[-1][0], add_block(block, _KEYS_BETWEEN_RESTARTS)))
    handles = add_block([], 1) + add_block(places, 1)
    return bytes(file) + handles.ljust(_HANDLES_BYTES, b"\0") + _MAGIC


def _divide(entries: Iterable[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    block: list[tuple[bytes, bytes]] = []
    size = 0
    for key, value in entries:
        block.append((key, value))
        size += len(key) + len(value)
        if size >= _BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def _encode_block(entries: list[tuple[bytes, bytes]], keys_between_restarts: int) -> bytes:
    block, restarts, last = bytearray(), [0], b""
    for number, (key, value) in enumerate(entries):
        if number and number % keys_between_restarts == 0:
            restarts.append(len(block))
        shared = 0 if number % keys_between_restarts == 0 else _shared_length(last, key)
        block += _varints.encode(shared) + _varints.encode(len(key) - shared) + _varints.encode(len(value))
        block += key[shared:] + value
        last = key
    return bytes(block) + b"".join(map(_INTEGER.pack, (*restarts, len(restarts))))


def _shared_length(one: bytes, other: bytes) -> int:
    most = min(len(one), len(other))
    return next((i for i in range(most) if one[i] != other[i]), most)
