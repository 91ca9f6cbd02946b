"""Numbers that texts spell, read as TensorFlow reads them."""

from collections.abc import Sequence
from decimal import Decimal

import numpy as np


def read_numbers(texts: Sequence[bytes], kind: np.dtype) -> np.ndarray:
    """Return the numbers `[len(texts)]` that texts spell.

    Args:
        texts: Integers in decimals; floats also in hexadecimal digits, "inf" or "nan". White space around them does not count.
        kind: float32, float64, or a type of integers.

    Raises:
        UnreadableNumberError: For the first text that spells no number of this type.
    """
    from pyarrow import ArrowInvalid

    # It takes hexadecimal digits for integers.
    if kind.kind == "f" or not _is_hexadecimal(b"".join(texts)):
        try:
            return _read_all(texts, kind)
        except ArrowInvalid:  # It does not say which text is no number, and knows fewer ways to spell one.
            pass
    numbers = [_read_number(i, text, kind) for i, text in enumerate(texts)]
    if kind != np.float32:
        return np.array(numbers, kind)
    # Rounded once, from their decimals.
    return _read_all([_spell(text, number) for text, number in zip(texts, numbers, strict=True)], kind)


class UnreadableNumberError(ValueError):
    """A text that spells no number.

    Attributes:
        number: Which of the texts it is.
    """

    def __init__(self, number: int) -> None:
        """Name the text by its number."""
        super().__init__(number)
        self.number = number


def _read_all(texts: Sequence[bytes], kind: np.dtype) -> np.ndarray:
    import pyarrow

    numbers = pyarrow.array(texts, pyarrow.string()).cast(pyarrow.from_numpy_dtype(kind))
    return numbers.to_numpy(zero_copy_only=False, writable=True)


def _read_number(number: int, text: bytes, kind: np.dtype) -> int | float:
    try:
        if b"_" in text:  # Python takes "1_000" for a number.
            raise ValueError
        if kind.kind in "iu":
            return _in_range(int(text), kind)
        return float.fromhex(text.strip().decode()) if _is_hexadecimal(text) else float(text)
    except (ValueError, OverflowError):
        raise UnreadableNumberError(number) from None


def _is_hexadecimal(text: bytes) -> bool:
    return b"x" in text or b"X" in text


def _in_range(value: int, kind: np.dtype) -> int:
    limits = np.iinfo(kind)
    if not limits.min <= value <= limits.max:
        raise ValueError
    return value


def _spell(text: bytes, number: int | float) -> bytes:
    """Return a number as Arrow reads it."""
    return str(Decimal(number)).encode() if _is_hexadecimal(text) else text.strip().lstrip(b"+")
