"""Operators of tensors with operands that are no tensors."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_TWO_WAYS = "add sub mul truediv floordiv mod pow matmul and or xor"
_COMPARISONS = "lt le gt ge"


def accept_operands(cls: Any, convert: Callable[..., Any]) -> None:
    """Let `tensor + [1, 2]` and, in full, `float64_tensor * 0.1` work as in TensorFlow, on an array class.

    JAX refuses sequences. And it takes Python's and NumPy's operands as 32 bits wide unless its global 64-bit switch is
    on, which would change every other type; TensorFlow gives them the tensor's type.

    Args:
        cls: The class.
        convert: Makes a tensor of a sequence, given a type to prefer.
    """
    names = [f"__{prefix}{name}__" for name in _TWO_WAYS.split() for prefix in ("", "r")]
    for name in [*names, *(f"__{name}__" for name in _COMPARISONS.split()), "__eq__", "__ne__"]:
        setattr(cls, name, _accepting(getattr(cls, name), convert))


def _accepting(original: Callable[[Any, Any], Any], convert: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    @functools.wraps(original)
    def operate(self: Any, other: Any) -> Any:
        if isinstance(other, list | tuple):
            other = convert(other, dtype_hint=self.dtype)
        elif self.aval.dtype.itemsize >= 8 and isinstance(other, int | float | complex | np.generic | np.ndarray):
            other = _widened(other, self.aval.dtype)
        return original(self, other)

    return operate


def _widened(operand: Any, dtype: Any) -> Any:
    """Return the operand as an array of `dtype`, or as it is if that would lose its kind."""
    host = np.asarray(operand)
    if not np.can_cast(host.dtype, dtype, "same_kind"):
        return operand
    with jax.ensure_compile_time_eval():
        return jnp.asarray(host.astype(dtype), dtype=dtype)
