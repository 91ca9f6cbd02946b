"""Numbers that texts spell, read as TensorFlow reads them."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np


def read_numbers(texts: Sequence[bytes], kind: np.dtype) -> np.ndarray:
    """Return the numbers `[len(texts)]` that texts spell.

    Args:
        texts: Integers in decimals; floats also in hexadecimal digits, "inf" or "nan". White space around them does not count.
        kind: float32, float64, or a type of integers.

    Raises:
        UnreadableNumberError: For the first text that spells no number of this type.
    """
    try:
        # Python takes "1_000" for a number.
        if b"_" in b"".join(texts):
            raise ValueError
        wide = np.float64 if kind.kind == "f" else np.uint64 if kind.itemsize == 8 and kind.kind == "u" else np.int64
        column = np.array(texts, "S").astype(wide)
        narrow = _narrowed(column, texts) if kind == np.float32 else column.astype(kind)
        if kind.kind in "iu" and not (narrow == column).all():
            raise ValueError
    except (ValueError, OverflowError):
        # One by one it is slow, and takes hexadecimal digits.
        return np.array([_read_number(i, text, kind) for i, text in enumerate(texts)], kind)
    return narrow


class UnreadableNumberError(ValueError):
    """A text that spells no number.

    Attributes:
        number: Which of the texts it is.
    """

    def __init__(self, number: int) -> None:
        """Name the text by its number."""
        super().__init__(number)
        self.number = number


def _read_number(number: int, text: bytes, kind: np.dtype) -> int | float | np.number:
    try:
        if b"_" in text:
            raise ValueError
        if kind.kind in "iu":
            return _in_range(int(text), kind)
        digits = text.strip().lower()
        value = float.fromhex(digits.decode()) if b"0x" in digits else float(text)
    except (ValueError, OverflowError):
        raise UnreadableNumberError(number) from None
    return _narrowed(np.array([value]), [text])[0] if kind == np.float32 else value


def _in_range(value: int, kind: np.dtype) -> int:
    limits = np.iinfo(kind)
    if not limits.min <= value <= limits.max:
        raise ValueError
    return value


def _narrowed(column: np.ndarray, texts: Sequence[bytes]) -> np.ndarray:
    """Return float32 numbers as if they were read at once: one that float64 has rounded to the middle of two is rounded by its text."""
    with np.errstate(over="ignore"):
        narrow = column.astype(np.float32)
        above, below = np.nextafter(narrow, np.float32(np.inf)), np.nextafter(narrow, np.float32(-np.inf))
        middles = [(narrow.astype(np.float64) + other) / 2 for other in (above, below)]
    is_middle = np.isfinite(column) & ((column == middles[0]) | (column == middles[1]))
    for i in np.flatnonzero(is_middle).tolist():
        if b"x" in texts[i].lower():
            continue  # Binary digits are not rounded before.
        exact, rounded = Fraction(texts[i].decode().strip()), Fraction(column[i])
        pair = sorted((narrow[i], above[i] if column[i] > narrow[i] else below[i]))
        if exact != rounded:
            narrow[i] = pair[exact > rounded]
    return narrow
