"""`tf.strings.lower`, `upper`, `strip`, `length`, `substr`: bytes and characters of strings."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._ops._host_operation import (
    make_strings,
    map_strings,
    numbers_of,
    require_choice,
    strings_of,
)
from tfdist_jax.compat.tensorflow._tensors._host_part import computes_rows
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor

_UNITS = ("BYTE", "UTF8_CHAR")


@computes_rows
def lower(input: Any, encoding: str = "", name: str | None = None) -> Any:
    """Return strings with small letters for capital ones.

    Args:
        input: Strings `[...]`.
        encoding: "" changes only ASCII's letters, "utf-8" those of all scripts; bytes that are no UTF-8 become U+FFFD.
        name: Unused.

    Raises:
        InvalidArgumentError: If the encoding is another one.
    """
    return _change_case(input, encoding, bytes.lower, str.lower)


@computes_rows
def upper(input: Any, encoding: str = "", name: str | None = None) -> Any:
    """Return strings with capital letters for small ones; see `lower`."""
    return _change_case(input, encoding, bytes.upper, str.upper)


def _change_case(
    texts: Any, encoding: str, of_bytes: Callable[[bytes], bytes], of_characters: Callable[[str], str]
) -> Any:
    if encoding not in ("", "utf-8"):
        raise invalid(f"only utf-8 or '' (no encoding) is supported, received {encoding}")
    in_utf8 = lambda text: of_characters(text.decode(errors="replace")).encode()
    return map_strings(in_utf8 if encoding else of_bytes, strings_of(texts))


@computes_rows
def strip(input: Any, name: str | None = None) -> Any:
    """Return strings without ASCII's white space at both ends."""
    return map_strings(bytes.strip, strings_of(input))


@computes_rows
def length(input: Any, unit: str = "BYTE", name: str | None = None) -> Any:
    """Return how long strings are, int32 of their shape.

    Args:
        input: Strings `[...]`.
        unit: What is counted: "BYTE", or "UTF8_CHAR" for characters of UTF-8.
        name: Unused.
    """
    require_choice(unit, "unit", _UNITS)
    texts = strings_of(input)
    count = len if unit == "BYTE" else lambda text: len(_find_characters(text)) - 1
    counts = np.fromiter(map(count, texts.reshape(-1).tolist()), np.int32, texts.size)
    return convert_to_tensor(counts.reshape(texts.shape))


@computes_rows
def substr(input: Any, pos: Any, len: Any, unit: str = "BYTE", name: str | None = None) -> Any:
    """Return parts of strings.

    Args:
        input: Strings.
        pos: Where the parts begin, int32 or int64; negative numbers count from the end. It broadcasts with the strings.
        len: How long they are at most, of the shape of `pos`; negative numbers mean to the end.
        unit: What positions count: "BYTE" or "UTF8_CHAR".
        name: Unused.

    Raises:
        InvalidArgumentError: If a part begins beyond its string, or shapes do not fit.
    """
    require_choice(unit, "unit", _UNITS)
    texts, starts, lengths = strings_of(input), numbers_of(pos), numbers_of(len)
    if starts.shape != lengths.shape:
        raise invalid(f"pos and len should have the same shape, got: {list(starts.shape)} vs. {list(lengths.shape)}")
    try:
        texts, starts, lengths = np.broadcast_arrays(texts, starts, lengths)
    except ValueError as error:
        raise invalid(f"pos and len do not broadcast with the strings: {error}") from None
    columns = zip(texts.flat, starts.flat, lengths.flat, strict=True)
    cut = _cut_bytes if unit == "BYTE" else _cut_characters
    return make_strings((cut(i, *column) for i, column in enumerate(columns)), texts.shape)


def _cut_bytes(number: int, text: bytes, start: int, length: int) -> bytes:
    place = _place(start, len(text))
    if place is None:
        raise invalid(f"pos {start} out of range for string b'{_shown(text)}' at index {number}")
    return text[place : place + length] if length >= 0 else text[place:]


def _cut_characters(number: int, text: bytes, start: int, length: int) -> bytes:
    borders = _find_characters(text)
    place = _place(start, len(borders) - 1)
    if place is None:
        raise invalid(f"pos {start} out of range for string at index {number}")
    end = min(place + length, len(borders) - 1) if length >= 0 else -1
    return text[borders[place] : borders[end]]


def _place(start: int, length: int) -> int | None:
    if not -length <= start <= length:
        return None
    return start if start >= 0 else length + start


def _find_characters(text: bytes) -> Sequence[int]:
    """Return where UTF-8's characters begin, and at last where the text ends."""
    if text.isascii():
        return range(len(text) + 1)
    numbers = np.frombuffer(text, np.uint8)
    return [*np.flatnonzero((numbers & 0xC0) != 0x80).tolist(), len(text)]


def _shown(text: bytes) -> str:
    return text.decode(errors="backslashreplace")
