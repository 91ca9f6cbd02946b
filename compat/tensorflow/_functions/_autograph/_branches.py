"""`if` statements and expressions whose condition is a tensor."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax.core import Tracer

from tfdist_jax._errors import ConcreteValueRequiredError
from tfdist_jax._stateful import _control_flow
from tfdist_jax.compat.tensorflow._functions._autograph._symbols import (
    RETURN_VALUE,
    Symbol,
    symbols,
    tensors_of,
)
from tfdist_jax.compat.tensorflow._ops._tensor_array import TensorArray
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow._variables._variable import Variable


def is_traced(value: Any) -> bool:
    """Tell whether a condition is known only when the program runs."""
    return isinstance(value.value() if isinstance(value, Variable) else value, Tracer)


def as_condition(value: Any) -> Any:
    """Return a tensor as the boolean scalar that it must be.

    Raises:
        ValueError: If it has more than one element.
    """
    tensor = convert_to_tensor(value)
    if tensor.size != 1:
        raise ValueError(
            "The truth value of a tensor with more than one element is ambiguous: its shape is "
            f"{tuple(tensor.shape)}. Use tf.reduce_any or tf.reduce_all."
        )
    return jnp.reshape(tensor, ()) != 0


def if_stmt(
    cond: Any,
    body: Callable[[], Any],
    orelse: Callable[[], Any],
    get_state: Callable[[], tuple[Any, ...]],
    set_state: Callable[[tuple[Any, ...]], None],
    symbol_names: Sequence[str],
    nouts: int,
) -> None:
    """Run an `if` statement: Python's on a known condition, one of two traced branches on a tensor.

    Args:
        cond: The condition.
        body: The main branch.
        orelse: The else branch.
        get_state: Returns the variables that the branches change.
        set_state: Gives them values.
        symbol_names: Their names.
        nouts: How many of them, the first ones, are used afterwards.
    """
    if not is_traced(cond):
        body() if cond else orelse()
        return
    start, names = get_state(), symbol_names[:nouts]
    ends: dict[str, list[Symbol]] = {}

    def run(branch: str, block: Callable[[], Any]) -> list[Any]:
        set_state(start)
        block()
        ends[branch] = symbols(names, get_state()[:nouts])
        if len(ends) == 2:
            _check(ends["main"], ends["else"])
        return tensors_of([symbol.read for symbol in ends[branch]])

    index = as_condition(cond).astype(jnp.int32)
    rest = iter(_control_flow.branch(index, [lambda: run("else", orelse), lambda: run("main", body)]))
    values = []
    for one, two in zip(ends["main"], ends["else"], strict=True):
        tensors = [next(rest) for _ in one.read.tensors]
        values.append(one.filled(one.without_read(tensors)) if one.is_like(two) else one.read.filled(tensors))
    set_state((*values, *start[nouts:]))


def _meeting(one: Symbol, two: Symbol) -> tuple[Symbol, Symbol]:
    """Return both as they leave the statement: variables stay variables if they are the same ones."""
    return (one, two) if one.is_like(two) else (one.read, two.read)


def if_exp(cond: Any, if_true: Callable[[], Any], if_false: Callable[[], Any], expr_repr: str) -> Any:
    """Return the value of `a if condition else b`."""
    if not is_traced(cond):
        return if_true() if cond else if_false()
    state: list[Any] = [None]
    assign = lambda value: state.__setitem__(0, value)
    if_stmt(
        cond,
        lambda: assign(if_true()),
        lambda: assign(if_false()),
        lambda: tuple(state),
        lambda values: assign(values[0]),
        (f"the value of `... if {expr_repr} else ...`",),
        1,
    )
    return state[0]


def _check(main: Sequence[Symbol], other: Sequence[Symbol]) -> None:
    """Require that both branches give each variable the same type of value."""
    for one, two in map(_meeting, main, other):
        for missing, present, branch in ((one, two, "main"), (two, one, "else")):
            if missing.is_undefined and not present.is_undefined:
                raise ValueError(_undefined(one.name, branch))
        for missing, present, branch in ((one, two, "main"), (two, one, "else")):
            if missing.is_none and not present.is_none:
                raise ValueError(f"{one.shown} is None at the end of the {branch} branch, but not of the other.")
        if not one.is_like(two):
            if one.holds_host_values or two.holds_host_values:
                raise ConcreteValueRequiredError(
                    f"{one.shown} is strings, or ragged, at the end of an `if` on a tensor, which only the host has."
                )
            if all(isinstance(symbol.filled(symbol.tensors), TensorArray) for symbol in (one, two)):
                raise ConcreteValueRequiredError(
                    f"{one.shown} grows in one branch of an `if` on a tensor, and not in the other."
                )
            raise TypeError(
                f"{one.shown} must have the same structure in the main and the else branch of an `if` on a "
                f"tensor, got {one.structure} and {two.structure}. Values that are no tensors must be the same "
                "object in both."
            )
        _check_tensors(one, two)


def _check_tensors(one: Symbol, two: Symbol) -> None:
    for a, b in zip(one.tensors, two.tensors, strict=True):
        if a.dtype != b.dtype:
            raise TypeError(
                f"{one.shown} must have the same dtype in the main and the else branch, got {a.dtype.name} "
                f"and {b.dtype.name}. Use tf.cast in one of them."
            )
        if a.shape != b.shape:
            raise ConcreteValueRequiredError(
                f"{one.shown} must have the same shape in the main and the else branch, since XLA needs "
                f"fixed shapes, got {a.shape} and {b.shape}."
            )


def _undefined(name: str, branch: str) -> str:
    if name == RETURN_VALUE:
        return (
            f"A value must also be returned from the {branch} branch. If a value is returned from one branch of a "
            "conditional on a tensor, one must be returned from all branches."
        )
    return f"'{name}' must also be initialized in the {branch} branch, or before the `if` on a tensor."
