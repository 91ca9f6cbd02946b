"""Functions of two tensors, element by element, of one type and with shapes that broadcast."""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy import special

from tfdist_jax.compat.tensorflow._ops import _subgradients
from tfdist_jax.compat.tensorflow._ops._arguments import (
    all_same_type,
    compute,
    invalid,
    keeps_static,
    require,
    same_type,
)
from tfdist_jax.compat.tensorflow._tensors import _texts
from tfdist_jax.compat.tensorflow._tensors._checks import check_divisor
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor, holds_texts
from tfdist_jax.compat.tensorflow._tensors._meeting import meeting
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor

_PAGE = "https://www.tensorflow.org/api_docs/python/tf/math"


def _binary(
    name: str, function: Callable[[Any, Any], Any], kinds: str, doc: str, of_texts: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """Make TensorFlow's operation of a JAX function; `kinds` as in `require`; `of_texts` does the same for texts."""

    def operation(x: Any, y: Any, name: str | None = None) -> Any:
        x, y = same_type(x, y)
        if of_texts is not None and holds_texts(x):
            return HostTensor.of(of_texts(x, y))
        require(x, kinds, operation.__name__)
        return compute(function, x, y)

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = f"{doc}\n\n    See {_PAGE}/{name}.\n    "
    return keeps_static(operation)


def _of_whole(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Let a division of integers raise for zero."""

    def divide(x: Any, y: Any) -> Any:
        check_divisor(y, x)
        return function(x, y)

    return divide


def _true_divide(x: jax.Array, y: jax.Array) -> jax.Array:
    dtype = as_dtype(x.dtype)
    if dtype.is_integer or dtype.is_bool:
        wide = jnp.float32 if dtype.size < 4 else jnp.float64
        return x.astype(wide) / y.astype(wide)
    return x / y


def _divide_no_nan(x: jax.Array, y: jax.Array) -> jax.Array:
    zero = y == 0
    return jnp.where(zero, jnp.zeros_like(x), x / jnp.where(zero, jnp.ones_like(y), y))


def _zero_where_zero(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Return x * function(y), and 0 where x is 0, whatever y is there."""

    def multiply(x: jax.Array, y: jax.Array) -> jax.Array:
        zero = x == 0
        return jnp.where(zero, jnp.zeros_like(x), x * function(jnp.where(zero, jnp.ones_like(y), y)))

    return multiply


add = _binary("add", jnp.add, "fci", "Return x + y; of texts, y behind x.", _texts.join)
subtract = _binary("subtract", jnp.subtract, "fci", "Return x - y.")
multiply = _binary("multiply", jnp.multiply, "fci", "Return x * y.")
truediv = _binary("truediv", _true_divide, "fcib", "Return x / y; integers give float64, small ones float32.")
realdiv = truediv
divide = _binary("divide", _true_divide, "fcib", "Return x / y as Python does: integers give floats.")
floordiv = _binary("floordiv", _of_whole(jnp.floor_divide), "fi", "Return x / y rounded down.")
floormod = _binary("floormod", _of_whole(jnp.mod), "fi", "Return the remainder of `floordiv`.")
mod = _binary("mod", _of_whole(jnp.mod), "fi", "Return the remainder of `floordiv`.")
truncatediv = _binary("truncatediv", _of_whole(jax.lax.div), "i", "Return x / y rounded towards zero.")
truncatemod = _binary("truncatemod", _of_whole(jnp.fmod), "fi", "Return the remainder of `truncatediv`.")
pow = _binary("pow", jnp.power, "fci", "Return x to the power of y.")
maximum = _binary("maximum", _subgradients.maximum, "fi", "Return the larger elements.")
minimum = _binary("minimum", _subgradients.minimum, "fi", "Return the smaller elements.")
squared_difference = _binary(
    "squared_difference", lambda x, y: jnp.square(x - y), "fci", "Return squares of differences."
)
divide_no_nan = _binary("divide_no_nan", _divide_no_nan, "fc", "Return x / y, and 0 where y is 0.")
multiply_no_nan = _binary(
    "multiply_no_nan",
    lambda x, y: jnp.where(y == 0, jnp.zeros_like(x * y), x * y),
    "fc",
    "Return x * y, and 0 where y is 0.",
)
xlogy = _binary("xlogy", _zero_where_zero(jnp.log), "fc", "Return x * log(y), and 0 where x is 0.")
xlog1py = _binary("xlog1py", _zero_where_zero(jnp.log1p), "fc", "Return x * log(1 + y), and 0 where x is 0.")
xdivy = _binary("xdivy", _zero_where_zero(jnp.reciprocal), "fc", "Return x / y, and 0 where x is 0.")
equal = _binary("equal", jnp.equal, "fcib", "Tell where x == y.", _texts.equal)
not_equal = _binary("not_equal", jnp.not_equal, "fcib", "Tell where x != y.", _texts.not_equal)
greater = _binary("greater", jnp.greater, "fi", "Tell where x > y.")
greater_equal = _binary("greater_equal", jnp.greater_equal, "fi", "Tell where x >= y.")
less = _binary("less", jnp.less, "fi", "Tell where x < y.")
less_equal = _binary("less_equal", jnp.less_equal, "fi", "Tell where x <= y.")
logical_and = _binary("logical_and", jnp.logical_and, "b", "Tell where x and y are true.")
logical_or = _binary("logical_or", jnp.logical_or, "b", "Tell where x or y is true.")
bitwise_and = _binary("bitwise_and", jnp.bitwise_and, "i", "Return the bits that are set in both.")
bitwise_or = _binary("bitwise_or", jnp.bitwise_or, "i", "Return the bits that are set in one or both.")
bitwise_xor = _binary("bitwise_xor", jnp.bitwise_xor, "i", "Return the bits that are set in one only.")
left_shift = _binary("left_shift", jnp.left_shift, "i", "Return x with its bits moved up by y.")
right_shift = _binary("right_shift", jnp.right_shift, "i", "Return x with its bits moved down by y.")


def logical_xor(x: Any, y: Any, name: str | None = "LogicalXor") -> jax.Array:
    """Tell where one of x and y is true."""
    x, y = same_type(x, y)
    return compute(jnp.logical_xor, require(x, "b", "math.logical_xor"), y)


def invert(x: Any, name: str | None = None) -> jax.Array:
    """Return integers with every bit flipped."""
    return jnp.invert(require(convert_to_tensor(x), "i", "bitwise.invert"))


def atan2(y: Any, x: Any, name: str | None = None) -> jax.Array:
    """Return the angles of the points (x, y)."""
    y, x = same_type(y, x)
    return compute(jnp.arctan2, require(y, "f", "math.atan2"), x)


def nextafter(x1: Any, x2: Any, name: str | None = None) -> jax.Array:
    """Return the next floats after x1 towards x2."""
    return compute(jnp.nextafter, *same_type(x1, x2))


def igamma(a: Any, x: Any, name: str | None = None) -> jax.Array:
    """Return lower regularized incomplete gamma functions."""
    return compute(special.gammainc, *same_type(a, x))


def igammac(a: Any, x: Any, name: str | None = None) -> jax.Array:
    """Return upper regularized incomplete gamma functions."""
    return compute(special.gammaincc, *same_type(a, x))


def betainc(a: Any, b: Any, x: Any, name: str | None = None) -> jax.Array:
    """Return regularized incomplete beta functions."""
    return compute(special.betainc, *all_same_type([a, b, x]))


def zeta(x: Any, q: Any, name: str | None = None) -> jax.Array:
    """Return Hurwitz zeta functions."""
    return compute(special.zeta, *same_type(x, q))


def polygamma(a: Any, x: Any, name: str | None = None) -> jax.Array:
    """Return derivatives of order `a`, whole numbers, of the digamma function."""
    order, x = same_type(a, x)
    return jnp.where(order == jnp.floor(order), compute(special.polygamma, order.astype(jnp.int32), x), jnp.nan)


def add_n(inputs: Any, name: str | None = None) -> jax.Array:
    """Return the sum of a list of tensors of one shape and type.

    See https://www.tensorflow.org/api_docs/python/tf/math/add_n.
    """
    if not isinstance(inputs, Sequence):
        inputs = [inputs]
    if not inputs:
        raise ValueError("Inputs must be an iterable of at least one Tensor with the same dtype and shape.")
    tensors = all_same_type(inputs)
    shapes = {tuple(tensor.shape) for tensor in tensors}
    if len(shapes) > 1:
        raise invalid(f"Inputs to operation AddN must have the same size and shape, got {sorted(shapes)}.")
    return functools.reduce(functools.partial(meeting, operator.add), tensors)


def accumulate_n(inputs: Any, shape: Any = None, tensor_dtype: Any = None, name: str | None = None) -> jax.Array:
    """Return the sum of a list of tensors."""
    return add_n(inputs)


def polyval(coeffs: Any, x: Any, name: str | None = None) -> jax.Array:
    """Return the values of a polynomial whose coefficients are given from the highest power down."""
    if not isinstance(coeffs, list):
        raise ValueError(f"Argument coeffs must be list type. Received type {type(coeffs)}.")
    tensor = convert_to_tensor(x)
    terms = [convert_to_tensor(one, dtype_hint=as_dtype(tensor.dtype)) for one in coeffs]
    return functools.reduce(lambda value, term: value * tensor + term, terms, jnp.zeros_like(tensor))


def scalar_mul(scalar: Any, x: Any, name: str | None = None) -> Any:
    """Return a scalar times a tensor."""
    x = convert_to_tensor(x)
    scalar = convert_to_tensor(scalar, dtype_hint=as_dtype(x.dtype))
    if scalar.ndim:
        raise ValueError(f"Only scalar multiply works, got a tensor of shape {tuple(scalar.shape)}.")
    return multiply(scalar, x)
