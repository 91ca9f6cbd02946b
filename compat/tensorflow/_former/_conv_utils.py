"""`keras.utils.conv_utils` of Keras 2: sizes that convolutions give, and their arguments in one form."""

from collections.abc import Sequence
from typing import Any

from tfdist_jax.compat.tensorflow._former._views import find_public

_PADDINGS = ("same", "valid", "full", "causal")
_FORMATS = ("channels_first", "channels_last")


def normalize_tuple(value: int | Sequence[int], n: int, name: str, allow_zero: bool = False) -> tuple[int, ...]:
    """Return a number n times, or n numbers as a tuple.

    Raises:
        ValueError: If they are not n whole numbers, or too small.
    """
    numbers = (value,) * n if isinstance(value, int) else tuple(value)
    least = 0 if allow_zero else 1
    if len(numbers) != n or any(not isinstance(number, int) or number < least for number in numbers):
        raise ValueError(f"The `{name}` argument must be {n} integers of at least {least}. Received: {value}")
    return numbers


def conv_output_length(
    input_length: int | None, filter_size: int, padding: str, stride: int, dilation: int = 1
) -> int | None:
    """Return how many places a convolution gives along an axis."""
    if input_length is None:
        return None
    normalize_padding(padding)
    extent = filter_size + (filter_size - 1) * (dilation - 1)
    places = {"same": 0, "causal": 0, "valid": 1 - extent, "full": extent - 1}[padding] + input_length
    return (places + stride - 1) // stride


def conv_input_length(output_length: int | None, filter_size: int, padding: str, stride: int) -> int | None:
    """Return along how long an axis a convolution gives so many places."""
    if output_length is None:
        return None
    pad = {"same": filter_size // 2, "valid": 0, "full": filter_size - 1}[padding]
    return (output_length - 1) * stride - 2 * pad + filter_size


def deconv_output_length(
    input_length: int | None,
    filter_size: int,
    padding: str,
    output_padding: int | None = None,
    stride: int = 0,
    dilation: int = 1,
) -> int | None:
    """Return how many places a transposed convolution gives along an axis."""
    if input_length is None:
        return None
    extent = filter_size + (filter_size - 1) * (dilation - 1)
    if output_padding is None:
        return (
            input_length * stride + {"valid": max(extent - stride, 0), "full": 2 - stride - extent, "same": 0}[padding]
        )
    pad = {"same": extent // 2, "valid": 0, "full": extent - 1}[padding]
    return (input_length - 1) * stride + extent - 2 * pad + output_padding


def normalize_data_format(value: str | None) -> str:
    """Return the order of axes: the one that is set where none is given.

    Raises:
        ValueError: If it is no order.
    """
    order = (value or find_public("tf.keras.backend").image_data_format()).lower()
    if order not in _FORMATS:
        raise ValueError(f"The `data_format` argument must be one of {_FORMATS}. Received: {value}")
    return order


def normalize_padding(value: Any) -> Any:
    """Return the kind of padding, in small letters.

    Raises:
        ValueError: If it is no kind.
    """
    if isinstance(value, list | tuple):
        return value
    if value.lower() not in _PADDINGS:
        raise ValueError(f"The `padding` argument must be one of {_PADDINGS}. Received: {value}")
    return value.lower()
