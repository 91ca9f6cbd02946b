"""`tf.strings.to_number`, `tf.strings.as_string`: numbers and the texts that spell them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._ops._host_operation import make_strings, numbers_of, strings_of
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import holds_texts
from tfdist_jax.compat.tensorflow._tensors._host_part import computes_rows
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow._tensors._text_numbers import UnreadableNumberError, read_numbers

# With what messages call them.
_READABLE = {
    "float32": "float",
    "float64": "double",
    "int32": "int32",
    "int64": "int64",
    "uint32": "uint32",
    "uint64": "uint64",
}
_FILLS = ("", " ", "+", "-", "0", "#")


@computes_rows
def to_number(input: Any, out_type: Any = _dtypes.float32, name: str | None = None) -> Any:
    """Return the numbers that strings spell.

    Args:
        input: Strings `[...]`.
        out_type: float32, float64, int32, int64, uint32 or uint64.
        name: Unused.

    Raises:
        InvalidArgumentError: If a string spells no such number.
    """
    texts, dtype = strings_of(input), as_dtype(out_type)
    if dtype.name not in _READABLE:
        allowed = ", ".join(_READABLE.values())
        raise invalid(f"Value for attr 'out_type' of {dtype.name} is not in the list of allowed values: {allowed}")
    items: list[bytes] = texts.reshape(-1).tolist()
    try:
        numbers = read_numbers(items, np.dtype(dtype.as_numpy_dtype))
    except UnreadableNumberError as error:
        text = items[error.number].decode(errors="backslashreplace")
        raise invalid(f"StringToNumberOp could not correctly convert string: {text}") from None
    return convert_to_tensor(numbers.reshape(texts.shape))


@computes_rows
def as_string(
    input: Any,
    precision: int = -1,
    scientific: bool = False,
    shortest: bool = False,
    width: int = -1,
    fill: str = "",
    name: str | None = None,
) -> Any:
    """Return the texts that spell numbers, as C's `printf` writes them.

    Args:
        input: Numbers or bools `[...]`; strings are returned as they are.
        precision: Digits behind the point of floating numbers; six if negative.
        scientific: Whether floating numbers have exponents.
        shortest: Whether they are written in the shorter of both forms, without zeros at the end.
        width: How long a text is at least.
        fill: What fills it up, or how: " ", "0", "-" for the left side, "+" for a sign.
        name: Unused.

    Raises:
        InvalidArgumentError: If the options do not go together, or not with the numbers' type.
    """
    tensor = convert_to_tensor(input)
    if holds_texts(tensor):
        return tensor
    numbers = numbers_of(tensor)
    kind = "f" if as_dtype(numbers.dtype).is_floating else numbers.dtype.kind
    _check_options(as_dtype(numbers.dtype).name, kind, (precision, scientific, shortest, fill))
    flags = fill + (str(width) if width > -1 else "")
    point = f".{precision}" if precision > -1 else ""
    if kind == "u" and fill == "+":
        flags = flags[1:]  # C writes no sign of numbers that have none.
    letter = "g" if shortest else "e" if scientific else "f"
    write = _writer(kind, f"%{flags}{point}{letter}" if kind in "fc" else f"%{flags}d")
    return make_strings(map(write, numbers.reshape(-1).tolist()), numbers.shape)


def _check_options(dtype: str, kind: str, options: tuple[int, bool, bool, str]) -> None:
    precision, scientific, shortest, fill = options
    if scientific and shortest:
        raise invalid("Cannot select both scientific and shortest notation")
    if len(fill) > 1:
        raise invalid("Fill string must be one or fewer characters")
    if fill not in _FILLS:
        raise invalid(f'Fill argument not supported: "{fill}"')
    if kind not in "fc" and (scientific or shortest):
        raise invalid(f"scientific and shortest format not supported for datatype {dtype}")
    if kind not in "fc" and precision > -1:
        raise invalid(f"precision not supported for datatype {dtype}")


def _writer(kind: str, form: str) -> Callable[[Any], bytes]:
    """Return what writes numbers of a kind in a form."""
    if kind == "b":
        return lambda number: b"true" if number else b"false"
    if kind == "c":
        return lambda number: f"({form % number.real},{form % number.imag})".encode()
    if kind == "f":
        padded = form.replace("%0", "% ", 1).replace("% ", "%", 1)
        # C fills infinite numbers up with blanks.
        return lambda number: ((form if np.isfinite(number) else padded) % number).encode()
    return lambda number: (form % number).encode()
