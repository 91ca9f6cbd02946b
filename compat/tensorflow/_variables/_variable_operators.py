"""Operators of variables: those of their values, with TensorFlow's rules for types."""

import operator
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._ops import _binary
from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError
from tfdist_jax.compat.tensorflow._tensors._composite import Composite
from tfdist_jax.compat.tensorflow.linalg._matrices import matmul

_TWO_WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "add": _binary.add,
    "sub": _binary.subtract,
    "mul": _binary.multiply,
    "truediv": _binary.truediv,
    "floordiv": _binary.floordiv,
    "mod": _binary.floormod,
    "pow": _binary.pow,
    "matmul": matmul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "lt": _binary.less,
    "le": _binary.less_equal,
    "gt": _binary.greater,
    "ge": _binary.greater_equal,
}


def operate_by_value(cls: Any, value_of: Callable[[Any], Any], *, is_changed_in_place: bool) -> None:
    """Put operators on a class.

    Args:
        cls: The class.
        value_of: Returns the value of one of its objects.
        is_changed_in_place: Whether `x += y` might be thought to change the object, and is refused.
    """
    for name, op in _TWO_WAYS.items():
        setattr(cls, f"__{name}__", _by_value(op, value_of))
        setattr(cls, f"__r{name}__", lambda self, other, op=op: op(other, value_of(self)))
        if is_changed_in_place:
            setattr(cls, f"__i{name}__", _refuse)
    for name, op in _COMPARISONS.items():
        setattr(cls, f"__{name}__", _by_value(op, value_of))
    for name in ("neg", "abs", "pos", "invert"):
        op = getattr(operator, name)
        setattr(cls, f"__{name}__", lambda self, op=op: op(value_of(self)))
    cls.__eq__ = lambda self, other: _same(self, other, _binary.equal, value_of, otherwise=False)
    cls.__ne__ = lambda self, other: _same(self, other, _binary.not_equal, value_of, otherwise=True)
    cls.__hash__ = None


def _by_value(op: Callable[[Any, Any], Any], value_of: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def operate(self: Any, other: Any) -> Any:
        if isinstance(other, Composite) and other.has_operators:
            return NotImplemented
        return op(value_of(self), other)

    return operate


def _same(
    owner: Any,
    other: Any,
    compare: Callable[[Any, Any], Any],
    value_of: Callable[[Any], Any],
    *,
    otherwise: bool,
) -> Any:
    """Compare elements; what is no tensor, or has a shape that does not fit, differs.

    Raises:
        InvalidArgumentError: If the elements are of another type.
        TypeError: If they are texts.
    """
    if other is None:
        return otherwise
    value = value_of(owner)
    try:
        return compare(value, other)
    except ValueError:
        return otherwise
    except InvalidArgumentError:
        if _is_shape_fitting(value, other):
            raise
        return jnp.asarray(otherwise)


def _is_shape_fitting(value: Any, other: Any) -> bool:
    try:
        np.broadcast_shapes(value.shape, np.shape(other))
    except ValueError:
        return False
    return True


def _refuse(self: Any, other: Any) -> Any:
    raise RuntimeError(
        "`variable += value` and the like are not supported on tf.Variable. Use `variable.assign_add(value)` to change "
        "the variable, or `out = variable + value` for a new tensor."
    )
