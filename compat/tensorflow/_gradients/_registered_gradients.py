"""Gradients by the names of operations: taken, and never asked for, since only compiled operations of a program's own need them."""

from collections.abc import Callable
from typing import Any, final


@final
class RegisterGradient:
    """A decorator for the gradient of an operation in a compiled file, which cannot be loaded here; the function stays as it is.

    See https://www.tensorflow.org/api_docs/python/tf/RegisterGradient.
    """

    def __init__(self, op_type: str) -> None:
        """Name the operation.

        Raises:
            TypeError: If the name is no string.
        """
        self._op_type = _checked(op_type)

    def __call__(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function."""
        return f


def no_gradient(op_type: str) -> None:
    """Say that an operation in a compiled file has no gradient.

    Raises:
        TypeError: If the name is no string.
    """
    _checked(op_type)


def _checked(op_type: Any) -> str:
    if not isinstance(op_type, str):
        raise TypeError(f"op_type must be a string. Received: {op_type!r}")
    return op_type
