"""`tf.debugging`: assertions about tensors.

What is known is checked at once: types, ranks and, outside of traced functions, values. Values of a compiled function
are checked by the host when it runs: its call waits for that, and raises.
"""

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tfdist_jax._stateful._state import current_scope
from tfdist_jax.compat.tensorflow._ops._arguments import invalid, same_type, static_ints
from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, is_tensor

_SHOWN = 3


def Assert(condition: Any, data: Any, summarize: int | None = None, name: str | None = None) -> None:
    """Raise an InvalidArgumentError that shows `data` if the condition is false."""
    truth = convert_to_tensor(condition)
    if truth.ndim:
        raise invalid(f"The condition of tf.Assert must be a scalar, got shape {tuple(truth.shape)}.")
    _check(truth, "assertion failed", list(data), summarize)


def _check(truth: Any, message: str, data: list[Any], summarize: int | None) -> None:
    tensors = [item if isinstance(item, str) else convert_to_tensor(item) for item in data]
    places = [i for i, item in enumerate(tensors) if isinstance(item, jax.Array)]

    def failure(holds: Any, *values: Any) -> str | None:
        if bool(np.all(holds)):
            return None
        shown = list(tensors)
        for i, value in zip(places, values, strict=True):
            shown[i] = _brief(np.asarray(value), summarize or _SHOWN)
        return ": ".join([message, *map(str, shown)])

    arrays = [tensors[i] for i in places]
    if any(isinstance(value, Tracer) for value in (truth, *arrays)):
        _check_when_run(failure, truth, *arrays)
    else:
        _raise_if(failure(truth, *arrays))


def _check_when_run(failure: Callable[..., str | None], *arrays: Any) -> None:
    """Check when the program runs: the function that runs it raises; where there is none, the program itself fails."""
    failures: list[str | None] = []
    scope = current_scope()

    def raise_first() -> None:
        found = next(filter(None, failures), None)
        failures.clear()
        _raise_if(found)

    if scope is not None and scope.after_run(raise_first):
        jax.debug.callback(lambda *values: failures.append(failure(*values)), *arrays)
    else:
        jax.debug.callback(lambda *values: _raise_if(failure(*values)), *arrays)


def _raise_if(message: str | None) -> None:
    if message is not None:
        raise InvalidArgumentError(None, None, message)


def _brief(array: np.ndarray, summarize: int) -> str:
    flat = array.reshape(-1)
    rest = " ..." if flat.size > summarize else ""
    return f"[{' '.join(str(value) for value in flat[:summarize])}{rest}]"


def _comparison(name: str, compare: Callable[[Any, Any], Any], sign: str) -> Callable[..., None]:
    def operation(
        x: Any, y: Any, message: str | None = None, summarize: int | None = None, name: str | None = None
    ) -> None:
        first, second = same_type(x, y)
        text = f"{message or ''} Condition x {sign} y did not hold element-wise"
        _check(jnp.all(compare(first, second)), text.strip(), ["x", first, "y", second], summarize)

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = f"Raise an InvalidArgumentError unless x {sign} y for all elements, broadcast."
    return operation


assert_equal = _comparison("assert_equal", operator.eq, "==")
assert_greater = _comparison("assert_greater", operator.gt, ">")
assert_greater_equal = _comparison("assert_greater_equal", operator.ge, ">=")
assert_less = _comparison("assert_less", operator.lt, "<")
assert_less_equal = _comparison("assert_less_equal", operator.le, "<=")


def assert_none_equal(
    x: Any, y: Any, summarize: int | None = None, message: str | None = None, name: str | None = None
) -> None:
    """Raise an InvalidArgumentError unless x != y for all elements, broadcast."""
    first, second = same_type(x, y)
    _check(jnp.all(first != second), message or "Condition x != y did not hold", ["x", first, "y", second], summarize)


def _sign(name: str, compare: Callable[[Any, Any], Any], sign: str) -> Callable[..., None]:
    def operation(x: Any, message: str | None = None, summarize: int | None = None, name: str | None = None) -> None:
        tensor = convert_to_tensor(x)
        text = f"{message or ''} Condition x {sign} 0 did not hold element-wise"
        _check(jnp.all(compare(tensor, 0)), text.strip(), ["x", tensor], summarize)

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = f"Raise an InvalidArgumentError unless x {sign} 0 for all elements."
    return operation


assert_negative = _sign("assert_negative", operator.lt, "<")
assert_non_negative = _sign("assert_non_negative", operator.ge, ">=")
assert_positive = _sign("assert_positive", operator.gt, ">")
assert_non_positive = _sign("assert_non_positive", operator.le, "<=")


def assert_near(
    x: Any,
    y: Any,
    rtol: Any = None,
    atol: Any = None,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> None:
    """Raise an InvalidArgumentError unless |x - y| <= atol + rtol * |y|; both are 10 times the type's precision."""
    first, second = same_type(x, y)
    precision = 10 * float(jnp.finfo(first.dtype).eps)
    bound = (precision if atol is None else atol) + (precision if rtol is None else rtol) * jnp.abs(second)
    _check(
        jnp.all(jnp.abs(first - second) <= bound),
        message or "x and y not equal to tolerance",
        [first, second],
        summarize,
    )


def assert_all_finite(x: Any, message: str, name: str | None = None) -> Any:
    """Return `x`; raise an InvalidArgumentError if an element is infinite or not a number."""
    return check_numerics(x, message)


def check_numerics(tensor: Any, message: str, name: str | None = None) -> Any:
    """Return the tensor; raise an InvalidArgumentError if an element is infinite or not a number."""
    values = convert_to_tensor(tensor)
    _check(jnp.all(jnp.isfinite(values)), f"{message} : Tensor had Inf or NaN values", [], None)
    return values


def assert_rank(x: Any, rank: Any, message: str | None = None, name: str | None = None) -> None:
    """Raise a ValueError unless the tensor has that many axes."""
    assert_rank_in(x, [rank], message)


def assert_rank_at_least(x: Any, rank: Any, message: str | None = None, name: str | None = None) -> None:
    """Raise a ValueError unless the tensor has at least that many axes."""
    have = convert_to_tensor(x).ndim
    if have < int(rank):
        raise ValueError(f"{message or ''} Tensor must have rank at least {int(rank)}. Received rank {have}.".strip())


def assert_rank_in(x: Any, ranks: Any, message: str | None = None, name: str | None = None) -> None:
    """Raise a ValueError unless the tensor's number of axes is one of `ranks`."""
    have, allowed = convert_to_tensor(x).ndim, static_ints(list(ranks), "ranks")
    if have not in allowed:
        wanted = " or ".join(map(str, allowed))
        raise ValueError(f"{message or ''} Tensor must have rank {wanted}. Received rank {have}.".strip())


def assert_scalar(tensor: Any, message: str | None = None, name: str | None = None) -> Any:
    """Return the tensor; raise a ValueError unless it has no axes."""
    assert_rank(tensor, 0, message)
    return tensor


def assert_integer(x: Any, message: str | None = None, name: str | None = None) -> None:
    """Raise a TypeError unless the tensor's type is an integer one."""
    dtype = as_dtype(convert_to_tensor(x).dtype)
    if not dtype.is_integer:
        raise TypeError(f"{message or ''} Expected an integer tensor, found {dtype!r}.".strip())


def assert_type(tensor: Any, tf_type: Any, message: str | None = None, name: str | None = None) -> None:
    """Raise a TypeError unless the tensor has a type."""
    dtype = as_dtype(convert_to_tensor(tensor).dtype)
    if dtype != as_dtype(tf_type):
        raise TypeError(f"{message or ''} Tensor must be of type {as_dtype(tf_type)!r}, found {dtype!r}.".strip())


def assert_same_float_dtype(tensors: Any = None, dtype: Any = None) -> Any:
    """Return the one floating-point type of all tensors; raise a ValueError if there is none."""
    found = {as_dtype(tensor.dtype) for tensor in tensors or [] if tensor is not None}
    found |= set() if dtype is None else {as_dtype(dtype)}
    if len(found) > 1 or not all(one.is_floating for one in found):
        raise ValueError(f"Expected tensors of one floating point type, got {found}.")
    return found.pop() if found else as_dtype("float32")


def assert_shapes(
    shapes: Any, data: Any = None, summarize: int | None = None, message: str | None = None, name: str | None = None
) -> None:
    """Raise a ValueError unless tensors have shapes, in which the same symbol always stands for the same size.

    Args:
        shapes: Pairs of a tensor and its shape: integers, symbols such as "N", None or "." for any size; a first
            or last "*" or ... for any number of axes.
        data: Unused.
        summarize: Unused.
        message: Put before the error.
        name: Unused.
    """
    pairs = shapes.items() if isinstance(shapes, dict) else shapes
    sizes: dict[Any, int] = {}
    for tensor, wanted in pairs:
        have = tuple(convert_to_tensor(tensor.deref() if hasattr(tensor, "deref") else tensor).shape)
        if not _matches(have, wanted, sizes):
            raise ValueError(f"{message or ''} Tensor shape {have} does not match {wanted} with {sizes}.".strip())


def _matches(have: tuple[int, ...], wanted: Any, sizes: dict[Any, int]) -> bool:
    symbols = [wanted] if isinstance(wanted, int) else list(wanted)
    if symbols and symbols[0] in (..., "*"):
        symbols = symbols[1:]
        have = have[max(len(have) - len(symbols), 0) :]
    elif symbols and symbols[-1] in (..., "*"):
        symbols = symbols[:-1]
        have = have[: len(symbols)]
    if len(have) != len(symbols):
        return False
    for size, symbol in zip(have, symbols, strict=True):
        known = symbol if isinstance(symbol, int) else size if symbol in (None, ".") else sizes.setdefault(symbol, size)
        if known != size:
            return False
    return True


def assert_proper_iterable(values: Any) -> None:
    """Raise a TypeError unless `values` is a sequence of tensors rather than one tensor."""
    if is_tensor(values) or isinstance(values, np.ndarray | str | bytes) or not hasattr(values, "__iter__"):
        raise TypeError(f"Expected argument 'values' to be iterable, found {type(values)}.")


def is_numeric_tensor(tensor: Any) -> bool:
    """Whether it is a tensor of numbers."""
    return is_tensor(tensor) and as_dtype(tensor.dtype).is_numeric
