"""One operation and its pullback: what reverse-mode differentiation needs of each recorded operation."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive

from tfdist_jax._autodiff._nested_programs import Params, held_arrays
from tfdist_jax._errors import ConcreteValueRequiredError

Arrays = Sequence[Any]
Operation = Callable[..., list[Any]]
"""A function from arrays to a list of arrays that may be run any number of times."""

Pullback = Callable[[Sequence[Any]], Arrays]
"""From the cotangents of an operation's results (None for zero) to those of its connected arguments."""

Computed = tuple[list[Any], Pullback, Pullback | None]
"""Results; the pullback that uses what was kept; the pullback that runs the operation anew, as one function of the
arguments too, so that it can itself be differentiated."""

_NO_DERIVATIVE = (NotImplementedError, ValueError)
"""How JAX says that an operation has no derivative; a mistake of the caller shows again when it is run plainly."""


@final
@dataclasses.dataclass(frozen=True)
class Bound:
    """A primitive with its parameters: equal ones compute the same, so what is compiled for one serves the others."""

    primitive: Primitive
    params: tuple[tuple[str, Any], ...]

    def __call__(self, *args: Any) -> list[Any]:
        """Compute on the current trace."""
        results = self.primitive.bind(*args, **dict(self.params))
        return list(results) if self.primitive.multiple_results else [results]


@final
@dataclasses.dataclass(frozen=True, eq=False)
class RowGradient:
    """A gradient of which only some rows are not zero: what a lookup in a table has, without the table's size.

    Attributes:
        values: `[n, *row]`.
        indices: `[n]`, the rows' numbers; what is given for the same row adds up.
        shape: The table's shape.
    """

    values: jax.Array
    indices: jax.Array
    shape: tuple[int, ...]

    def dense(self) -> jax.Array:
        """Return the gradient as an array of the table's shape."""
        return self + jnp.zeros(self.shape, self.values.dtype)

    def __add__(self, other: Any) -> Any:
        """Add rows, or an array of the table's shape, which makes an array."""
        if not isinstance(other, RowGradient):
            return other.at[self.indices].add(self.values, mode="drop")
        return RowGradient(
            jnp.concatenate([self.values, other.values]), jnp.concatenate([self.indices, other.indices]), self.shape
        )

    __radd__ = __add__


def dense(cotangent: Any) -> Any:
    """Return a cotangent as an array, or None."""
    return cotangent.dense() if isinstance(cotangent, RowGradient) else cotangent


def bound(primitive: Primitive, params: Params) -> Bound:
    """Return the operation that `primitive` is with `params`."""
    return Bound(primitive, tuple(params.items()))


def is_differentiable(array: Any) -> bool:
    """Whether gradients with respect to `array` can exist."""
    return hasattr(array, "dtype") and jnp.issubdtype(array.dtype, jnp.inexact)


def compute(operation: Operation, args: Arrays, moving: tuple[int, ...], *, eagerly: bool) -> Computed:
    """Run `operation(*args)`; return its results and the pullbacks to the arguments at `moving`.

    Eagerly, one compiled program gives both, kept for the next call: tracing each time costs milliseconds.
    """
    keep = _can_be_kept(operation)
    width = _width(args)
    try:
        with width():
            results, vjp = _compiled(operation, moving)(*args) if eagerly and keep else _vjp(operation, moving, args)
    except _NO_DERIVATIVE as error:
        return operation(*args), functools.partial(_refuse, operation, error), None
    pull = functools.partial(_pull_compiled if eagerly and keep else _pull, vjp, _shapes(results))
    again = _compiled_again(operation, moving) if keep else _again(operation, moving)
    return results, functools.partial(_within, width, pull), functools.partial(_within, width, again, args)


def _within(width: Callable[[], Any], fn: Callable[..., Any], *args: Any) -> Any:
    with width():
        return fn(*args)


def _width(args: Arrays) -> Callable[[], Any]:
    """Return the context for derivatives of `args`: JAX's rules write constants of the widest type that is switched on."""
    if any(getattr(arg, "dtype", None) in (jnp.float64, jnp.complex128) for arg in args):
        return functools.partial(jax.enable_x64, True)
    return contextlib.nullcontext


def _vjp(operation: Operation, moving: tuple[int, ...], args: Arrays) -> tuple[list[Any], Any]:
    def of_moving(*values: Any) -> list[Any]:
        full = list(args)
        for i, value in zip(moving, values, strict=True):
            full[i] = value
        return operation(*full)

    return jax.vjp(of_moving, *(args[i] for i in moving))


@functools.lru_cache(maxsize=2048)
def _compiled(operation: Operation, moving: tuple[int, ...]) -> Callable[..., Any]:
    return jax.jit(lambda *args: _vjp(operation, moving, args))


def _again(operation: Operation, moving: tuple[int, ...]) -> Callable[..., Any]:
    def pull(args: Arrays, cotangents: Arrays) -> Arrays:
        results, vjp = _vjp(operation, moving, args)
        return _pull(vjp, _shapes(results), cotangents)

    return jax.jit(pull)


_compiled_again = functools.lru_cache(maxsize=2048)(_again)


def _can_be_kept(operation: Operation) -> bool:
    """Whether the operation is all in its parameters, which do not keep arrays alive."""
    if not isinstance(operation, Bound) or next(held_arrays(dict(operation.params)), None) is not None:
        return False
    try:
        hash(operation)
    except TypeError:
        return False
    return True


def _shapes(results: Arrays) -> tuple[Hashable, ...]:
    return tuple(jax.typeof(result) for result in results)


def _pull(vjp: Any, shapes: Sequence[Any], cotangents: Arrays) -> Arrays:
    try:
        return vjp([_zeros(s) if c is None else c for c, s in zip(cotangents, shapes, strict=True)])
    except ValueError as error:
        if "lax.while_loop" not in str(error):
            raise
        raise ConcreteValueRequiredError(
            "A `while` loop has no gradient in a compiled program unless its number of iterations has a bound that is "
            f"known: JAX says {error}"
        ) from error


_pull_compiled = jax.jit(_pull, static_argnums=1)


def _zeros(shape: Any) -> Any:
    if is_differentiable(shape):
        return jnp.zeros(shape.shape, shape.dtype)
    return np.zeros(shape.shape, jax.dtypes.float0)


def _refuse(operation: Operation, reason: Exception, cotangents: Arrays) -> Arrays:
    name = operation.primitive.name if isinstance(operation, Bound) else "a custom derivative"
    raise LookupError(f"There is no gradient through {name!r}: {reason}") from reason
