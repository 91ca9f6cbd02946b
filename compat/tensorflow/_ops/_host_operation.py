"""Operations that compute on the host, since their arguments are strings, or their results' sizes follow from values."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid, value_of
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor

_NOT_KNOWN = (
    "An operation of strings runs on the host, and takes a number here that the compiled function computes. Compute it outside "
    "of the function, or from the function's arguments on the host."
)


def strings_of(value: Any) -> np.ndarray:
    """Return a tensor of strings as an array of bytes objects.

    Raises:
        TypeError: If it holds no strings.
    """
    return np.asarray(convert_to_tensor(value, _dtypes.string), object)


def numbers_of(value: Any, dtype: Any = None) -> np.ndarray:
    """Return a tensor of numbers as a NumPy array.

    Raises:
        ConcreteValueRequiredError: If a compiled function computes it.
    """
    return np.asarray(value_of(convert_to_tensor(value, dtype), _NOT_KNOWN))


def make_strings(items: Iterable[bytes], shape: tuple[int, ...]) -> HostTensor:
    """Return a tensor of strings from its elements in row-major order."""
    return HostTensor.of(np.fromiter(items, object).reshape(shape))


def map_strings(function: Callable[[bytes], bytes], texts: np.ndarray) -> HostTensor:
    """Apply a function to each string of a tensor."""
    return make_strings(map(function, texts.reshape(-1).tolist()), texts.shape)


def require_choice(value: Any, name: str, choices: Iterable[str]) -> None:
    """Check an argument that is one of a few words.

    Raises:
        InvalidArgumentError: If it is another one.
    """
    if value not in choices:
        allowed = ", ".join(f'"{choice}"' for choice in choices)
        raise invalid(f"Value for attr '{name}' of \"{value}\" is not in the list of allowed values: {allowed}")
