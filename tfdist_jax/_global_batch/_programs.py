"""What programs have inside of them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

# Operations that do nothing but call a program.
INLINED = {"jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat", "remat2", "checkpoint"}


def equations(jaxpr: Jaxpr, is_leaf: Callable[[JaxprEqn], bool] = lambda eqn: False) -> Iterator[JaxprEqn]:
    """Yield the operations of a program and of the programs inside of it, but for those inside of leaves."""
    for eqn in jaxpr.eqns:
        yield eqn
        if is_leaf(eqn):
            continue
        yield from equations_inside(eqn, is_leaf)


def equations_inside(eqn: JaxprEqn, is_leaf: Callable[[JaxprEqn], bool] = lambda eqn: False) -> Iterator[JaxprEqn]:
    """Yield the operations of the programs inside of an operation, as `equations`."""
    for inner in programs_inside(eqn):
        yield from equations(open_program(inner), is_leaf)


def programs_inside(eqn: JaxprEqn) -> list[Jaxpr | ClosedJaxpr]:
    """Return the programs inside of an operation."""
    return [leaf for leaf in jax.tree.leaves(list(eqn.params.values()), is_leaf=is_program) if is_program(leaf)]


def is_program(value: Any) -> bool:
    """Whether a value is a program."""
    return isinstance(value, Jaxpr | ClosedJaxpr)


def open_program(program: Jaxpr | ClosedJaxpr) -> Jaxpr:
    """Return a program without its constants."""
    return program.jaxpr if isinstance(program, ClosedJaxpr) else program


def scan_operands(eqn: JaxprEqn, operands: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    """Return the operands of a `scan` that are constants, that are carried, and that it goes through."""
    # JAX's versions call them by different names; what is gone through has one dimension more outside than inside.
    body = open_program(eqn.params["jaxpr"])
    num_carry = sum(_has_one_shape(*pair) for pair in zip(eqn.outvars, body.outvars, strict=True))
    num_consts = sum(_has_one_shape(*pair) for pair in zip(eqn.invars, body.invars, strict=True)) - num_carry
    return operands[:num_consts], operands[num_consts : num_consts + num_carry], operands[num_consts + num_carry :]


def _has_one_shape(one: Any, other: Any) -> bool:
    return len(one.aval.shape) == len(other.aval.shape)
