"""Arrays of texts, which are bytes objects: compared and joined element by element, and carried by what moves elements."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._host_values import host_value


def is_text(value: Any) -> bool:
    """Tell whether a Python value means a tensor of texts: a string, or lists of strings."""
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return isinstance(value, str | bytes)


def operand(value: Any, operation: str) -> np.ndarray:
    """Return what stands beside a tensor of texts as texts.

    Raises:
        TypeError: If it is a number, or something else that is no text.
        InvalidArgumentError: If it is a tensor of numbers.
    """
    dtype = getattr(value, "dtype", None)
    if dtype is not None and np.dtype(getattr(dtype, "dtype", dtype)).kind not in "OSU":
        raise InvalidArgumentError(None, None, f"cannot compute {operation} of texts and a tensor of {dtype}.")
    return host_value(value, _dtypes.string)


def equal(x: np.ndarray, y: np.ndarray) -> Any:
    """Tell where two arrays of texts are equal."""
    return _elementwise(np.equal, x, y, dtype=np.bool_)


def not_equal(x: np.ndarray, y: np.ndarray) -> Any:
    """Tell where two arrays of texts are not equal."""
    return _elementwise(np.not_equal, x, y, dtype=np.bool_)


def join(x: np.ndarray, y: np.ndarray) -> Any:
    """Return each text of `x` with that of `y` behind it."""
    return _elementwise(np.add, x, y, dtype=np.object_)


def _elementwise(function: Callable[..., Any], x: np.ndarray, y: np.ndarray, dtype: Any) -> Any:
    try:
        return function(np.asarray(x), np.asarray(y), dtype=dtype)
    except ValueError:
        message = f"Incompatible shapes: {list(np.shape(x))} vs. {list(np.shape(y))}."
        raise InvalidArgumentError(None, None, message) from None
