"""Boolean operators, assertions and builtin functions that know tensors."""

import builtins
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from tfdist_jax.compat.tensorflow._functions._autograph import _ranges
from tfdist_jax.compat.tensorflow._functions._autograph._branches import as_condition, is_traced
from tfdist_jax.compat.tensorflow._names._symbolic import unwrap
from tfdist_jax.compat.tensorflow._ops import _control
from tfdist_jax.compat.tensorflow._ops._assertions import Assert
from tfdist_jax.compat.tensorflow._ops._creation import range as tf_range
from tfdist_jax.compat.tensorflow._ops._printing import print as tf_print
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow._variables._variable import Variable


def and_(a: Callable[[], Any], b: Callable[[], Any]) -> Any:
    """Return `a and b`."""
    first = a()
    return jnp.logical_and(*_both(first, b())) if is_traced(first) else first and b()


def or_(a: Callable[[], Any], b: Callable[[], Any]) -> Any:
    """Return `a or b`."""
    first = a()
    return jnp.logical_or(*_both(first, b())) if is_traced(first) else first or b()


def not_(a: Any) -> Any:
    """Return `not a`."""
    return jnp.logical_not(_boolean(a)) if is_traced(a) else not a


def _both(a: Any, b: Any) -> tuple[Any, Any]:
    return _boolean(a), _boolean(b)


def _boolean(value: Any) -> Any:
    tensor = convert_to_tensor(value)
    if tensor.dtype != jnp.bool_:
        raise TypeError(
            f"`and`, `or` and `not` need boolean tensors, got one of dtype {tensor.dtype.name}: compare it."
        )
    return tensor


def assert_stmt(condition: Any, message: Callable[[], Any]) -> None:
    """Check `assert condition, message`: now, or when the program runs."""
    if is_traced(condition):
        Assert(as_condition(condition), [message()])
    elif not condition:
        raise AssertionError(*[text for text in (message(),) if text != ""])


def replacement(f: Any) -> Callable[..., Any] | None:
    """Return what converted code calls in place of a function, or None."""
    try:
        return _REPLACED.get(unwrap(f))
    except TypeError:  # Not hashable, so none of them.
        return None


def calls_functions(f: Any) -> bool:
    """Tell whether a function of TensorFlow's calls its arguments as part of the program."""
    try:
        return unwrap(f) in _CALLERS
    except TypeError:
        return False


def _print(*values: Any, **options: Any) -> None:
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves([_value(v) for v in values])):
        tf_print(*values, **{name: value for name, value in options.items() if name in ("sep", "end")})
    else:
        builtins.print(*values, **options)


def _number(python: Any, dtype: Any) -> Callable[..., Any]:
    def convert(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and is_traced(args[0]):
            return convert_to_tensor(_value(args[0])).astype(dtype)
        return python(*args, **kwargs)

    return convert


def _range(*bounds: Any) -> Any:
    if any(is_traced(bound) for bound in bounds):
        return _ranges.range_(*map(_value, bounds))
    return builtins.range(*bounds)


def _bool(value: Any = False) -> Any:
    return as_condition(value) if is_traced(value) else bool(value)


def _value(value: Any) -> Any:
    return value.value() if isinstance(value, Variable) else value


def _next(iterator: Any, *default: Any) -> Any:
    """Return the next element; at the end of a dataset the error is TensorFlow's, as in its functions."""
    if default or not hasattr(iterator, "get_next"):
        return next(iterator, *default)
    return iterator.get_next()


_CALLERS = frozenset(
    (
        _control.case,
        _control.cond,
        _control.foldl,
        _control.foldr,
        _control.map_fn,
        _control.scan,
        _control.switch_case,
        _control.vectorized_map,
        _control.while_loop,
    )
)

_REPLACED: dict[Any, Callable[..., Any]] = {
    builtins.print: _print,
    builtins.int: _number(int, jnp.int32),
    builtins.float: _number(float, jnp.float32),
    builtins.bool: _bool,
    builtins.next: _next,
    builtins.range: _range,
    tf_range: _ranges.range_,
}
