"""Operators of tensors: with operands that are no tensors, and with TensorFlow's rules in programs that import it."""

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tfdist_jax._internals import ArrayImpl
from tfdist_jax._user_code import is_user_code
from tfdist_jax.compat._importers import imports_facade
from tfdist_jax.compat.tensorflow._ops._binary import truediv
from tfdist_jax.compat.tensorflow._ops._subgradients import absolute
from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError
from tfdist_jax.compat.tensorflow._tensors._checks import check_divisor, missing_entry
from tfdist_jax.compat.tensorflow._tensors._composite import Composite
from tfdist_jax.compat.tensorflow._tensors._conversions import is_registered
from tfdist_jax.compat.tensorflow._tensors._host import holds_texts
from tfdist_jax.compat.tensorflow._tensors._meeting import brought_together, is_of_devices
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow._tensors._texts import is_text

_TWO_WAYS = "add sub mul truediv floordiv mod pow matmul and or xor"
_COMPARISONS = "lt le gt ge"
_PRODUCTS = ("__mul__", "__rmul__")
_NOT_FOR_BOOLS = frozenset(
    f"__{prefix}{name}__"
    for name in ["add", "sub", "truediv", "floordiv", "mod", "pow", "matmul", *_COMPARISONS.split()]
    for prefix in ("", "r")
)


@functools.cache
def install() -> None:
    """Let `tensor + [1, 2]` and, in full, `float64_tensor * 0.1` work as in TensorFlow.

    JAX refuses sequences. And it takes Python's and NumPy's operands as 32 bits wide unless its global 64-bit switch is
    on, which would change every other type; TensorFlow gives them the tensor's type.
    """
    for cls in (ArrayImpl, Tracer):
        _accept_operands(cls)


def _accept_operands(cls: Any) -> None:
    names = [f"__{prefix}{name}__" for name in _TWO_WAYS.split() for prefix in ("", "r")]
    for name in [*names, *(f"__{name}__" for name in _COMPARISONS.split()), "__eq__", "__ne__"]:
        setattr(cls, name, _accepting(name, getattr(cls, name)))
    for name, original in (("__neg__", cls.__neg__), ("__abs__", absolute)):
        setattr(cls, name, _refusing_bool(name, original))
    cls.__getitem__ = _inside(cls.__getitem__)


def _accepting(name: str, original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    frame, own_way = sys._getframe, _OWN_WAYS.get(name)

    @functools.wraps(original)
    def operate(self: Any, other: Any) -> Any:
        if isinstance(other, list | tuple):
            other = convert_to_tensor(other, dtype_hint=self.dtype)
        elif self.aval.dtype.itemsize >= 8 and isinstance(other, int | float | complex | np.generic | np.ndarray):
            other = _widened(other, self.aval.dtype)
        mixed = self.aval.dtype.kind in "iub" or getattr(other, "dtype", self.aval.dtype) != self.aval.dtype
        if mixed and _is_tensorflow_program(frame(1)):
            if isinstance(other, Composite) and other.has_operators:
                return NotImplemented
            other = _read(other)
            if name in _PRODUCTS and _of_bools(name, self, other):
                return jnp.logical_and(self, other)
            _require_same_type(name, self, other)
            if own_way is not None and self.aval.dtype.kind in "iu":
                return own_way(original, self, other)
        try:
            result = original(self, other)
            return _of_unknown(name, original, self, other, frame(1)) if result is NotImplemented else result
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, jax.errors.JAXTypeError) or not _is_tensorflow_program(frame(1)):
                raise
            return _unlike(name, original, self, other, error)

    return operate


def _of_unknown(name: str, original: Callable[[Any, Any], Any], mine: Any, other: Any, frame: FrameType) -> Any:
    """Return what an operator makes of an operand that JAX does not know; NotImplemented if TensorFlow does not either."""
    if is_registered(other):
        return original(mine, convert_to_tensor(other, mine.dtype))
    if is_text(other) and _is_tensorflow_program(frame):
        raise _unlike_text(name, mine, other)  # Python would take numbers and texts as not equal.
    return NotImplemented


def _read(other: Any) -> Any:
    """Return the value of a variable; other operands as they are."""
    return convert_to_tensor(other) if hasattr(other, "assign") else other


def _refusing_bool(name: str, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    frame = sys._getframe

    @functools.wraps(original)
    def operate(self: Any) -> Any:
        if self.aval.dtype == np.bool_ and _is_tensorflow_program(frame(1)):
            raise _wrong_types(self, f"cannot compute {name.strip('_')} of bool tensors: use tf.cast, or `~`.")
        return original(self)

    return operate


def _inside(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Let `tensor[key]` raise for what is not there, where JAX gives the last entry."""
    frame = sys._getframe

    @functools.wraps(original)
    def getitem(self: Any, key: Any) -> Any:
        message = missing_entry(key, self.aval.shape)
        if message and _is_tensorflow_program(frame(1)):
            raise ValueError(message) if isinstance(self, Tracer) else InvalidArgumentError(None, None, message)
        return original(self, key)

    return getitem


def _unlike(name: str, original: Callable[[Any, Any], Any], mine: jax.Array, other: Any, error: Exception) -> Any:
    """Return what TensorFlow makes of operands that JAX refuses: of other devices, or with shapes that do not fit.

    Those differ, or it is an error.
    """
    if is_of_devices(error):
        return original(*brought_together((mine, other)))
    if isinstance(other, Composite) and other.has_operators:
        return NotImplemented
    if isinstance(error, OverflowError):
        raise ValueError(f"{other} does not fit into a tensor of {mine.aval.dtype.name}. Use `tf.cast`.") from error
    if not hasattr(other, "shape"):
        raise error
    if holds_texts(other):
        shown = f"cannot compute {name.strip('_')} of a {mine.aval.dtype.name} tensor and texts."
        raise InvalidArgumentError(None, None, shown) from error
    if name in ("__eq__", "__ne__"):
        return jnp.asarray(name == "__ne__")
    message = f"Incompatible shapes for {name.strip('_')}: {list(mine.aval.shape)} and {list(np.shape(other))}."
    raise (ValueError(message) if isinstance(mine, Tracer) else InvalidArgumentError(None, None, message)) from error


def _unlike_text(name: str, mine: jax.Array, other: Any) -> Exception:
    message = f"cannot compute {name.strip('_')} of a {mine.aval.dtype.name} tensor and {other!r}."
    return _wrong_types(mine, message) if name == "__add__" else TypeError(message)


def _is_tensorflow_program(frame: FrameType) -> bool:
    """Whether code is of a module that imports the facade: it relies on TensorFlow's rules, others on JAX's."""
    return is_user_code(frame) and imports_facade(frame.f_globals)


def _of_bools(name: str, mine: jax.Array, other: Any) -> bool:
    """Whether a product is TensorFlow's logical and: of bool tensors, with whatever stands right of them."""
    if isinstance(other, jax.Array):
        return np.bool_ in (mine.aval.dtype, other.aval.dtype)
    return mine.aval.dtype == np.bool_ and (name == "__mul__" or isinstance(other, bool))


def _require_same_type(name: str, mine: jax.Array, other: Any) -> None:
    """Raise where TensorFlow's operators take no operands of these types."""
    dtype, shown = mine.aval.dtype, name.strip("_")
    if isinstance(other, jax.Array):
        weak = mine.aval.weak_type or other.aval.weak_type
        if other.aval.dtype != dtype and not weak:
            names = f"a {dtype.name} and a {other.aval.dtype.name} tensor"
            raise _wrong_types(mine, f"cannot compute {shown} of {names}: use tf.cast on one of them.")
    elif not _fits(other, dtype):
        message = f"cannot compute {shown} of a {dtype.name} tensor and Python's {other!r}: use tf.cast."
        raise _wrong_types(mine, message) if shown == "add" else TypeError(message)
    if dtype == np.bool_ and name in _NOT_FOR_BOOLS:
        message = f"cannot compute {shown} of bool tensors: use tf.cast, or logical operators."
        raise TypeError(message) if shown == "truediv" else _wrong_types(mine, message)


def _fits(value: Any, dtype: Any) -> bool:
    """Whether a Python number has a meaning in a tensor's type."""
    if isinstance(value, float):
        return dtype.kind not in "iub"
    return dtype.kind != "b" or isinstance(value, bool) or not isinstance(value, int)


def _wrong_types(tensor: Any, message: str) -> Exception:
    """Return the error that TensorFlow raises: another one while a function is traced."""
    return TypeError(message) if isinstance(tensor, Tracer) else InvalidArgumentError(None, None, message)


def _whole(divide: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    check_divisor(y, x)
    return divide(x, y)


def _whole_reflected(divide: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    check_divisor(x, y)
    return divide(x, y)


# How integers are divided: with floats as the result, or with an error for zero.
_OWN_WAYS: dict[str, Callable[..., Any]] = {
    "__truediv__": lambda _, x, y: truediv(x, y),
    "__rtruediv__": lambda _, x, y: truediv(y, x),
    "__floordiv__": _whole,
    "__mod__": _whole,
    "__rfloordiv__": _whole_reflected,
    "__rmod__": _whole_reflected,
}


def _widened(operand: Any, dtype: Any) -> Any:
    """Return the operand as an array of `dtype`, or as it is if that would lose its kind."""
    host = np.asarray(operand)
    if not np.can_cast(host.dtype, dtype, "same_kind"):
        return operand
    with jax.ensure_compile_time_eval():
        return jnp.asarray(host.astype(dtype), dtype=dtype)
