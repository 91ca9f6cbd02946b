"""Operators of 64-bit tensors with Python and NumPy operands."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_NAMES = "add sub mul truediv floordiv mod pow"
_COMPARISONS = "eq ne lt le gt ge"


def keep_64_bit_operands(cls: Any) -> None:
    """Let `float64_tensor * 0.1` use 0.1 in full.

    JAX takes operands that are no JAX arrays as 32 bits wide unless its global 64-bit switch is on, which would
    change every other type. TensorFlow gives them the tensor's type.
    """
    names = [f"__{prefix}{name}__" for name in _NAMES.split() for prefix in ("", "r")]
    for name in names + [f"__{name}__" for name in _COMPARISONS.split()]:
        setattr(cls, name, _widened(getattr(cls, name)))


def _widened(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    @functools.wraps(original)
    def operate(self: Any, other: Any) -> Any:
        if self.aval.dtype.itemsize >= 8 and isinstance(other, int | float | complex | np.generic | np.ndarray):
            other = _as_type(other, self.aval.dtype)
        return original(self, other)

    return operate


def _as_type(operand: Any, dtype: Any) -> Any:
    """Return the operand as an array of `dtype`, or as it is if that would lose its kind."""
    host = np.asarray(operand)
    if not np.can_cast(host.dtype, dtype, "same_kind"):
        return operand
    with jax.ensure_compile_time_eval():
        return jnp.asarray(host.astype(dtype), dtype=dtype)
