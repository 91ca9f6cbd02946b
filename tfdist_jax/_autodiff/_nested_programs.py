"""The programs inside operations (bodies of jit, cond, scan, ...): the arrays they hold, and running them in Python."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Primitive, jaxpr_as_fun

from tfdist_jax._internals import scan_sizes

Params = dict[str, Any]

# Caches: programs do not change, and an entry goes with its program.
_held: WeakKeyDictionary[Any, tuple[jax.Array, ...]] = WeakKeyDictionary()
_unused: WeakKeyDictionary[Any, frozenset[int]] = WeakKeyDictionary()


def held_arrays(params: Params) -> Iterator[jax.Array]:
    """Yield the arrays that an operation's programs hold as constants, at any depth."""
    for program in _programs_in(params):
        yield from _held_by(program)


def _held_by(program: Any) -> tuple[jax.Array, ...]:
    if program not in _held:
        found = [*getattr(program, "consts", ())]
        for eqn in program.eqns:
            found += [atom.val for atom in eqn.invars if isinstance(atom, Literal)]
            found += held_arrays(eqn.params)
        _held[program] = tuple(value for value in found if isinstance(value, jax.Array))
    return _held[program]


def unused_arguments(primitive: Primitive, params: Params) -> frozenset[int]:
    """Return which arguments of a call its program does nothing with."""
    return _unused_by(params["jaxpr"]) if primitive.name in _CALLS and "jaxpr" in params else frozenset()


def _unused_by(program: Any) -> frozenset[int]:
    if program not in _unused:
        inner = program.jaxpr if isinstance(program, ClosedJaxpr) else program
        used = set(map(id, inner.outvars))
        for eqn in inner.eqns:
            idle = unused_arguments(eqn.primitive, eqn.params)
            used |= {id(atom) for i, atom in enumerate(eqn.invars) if i not in idle}
        _unused[program] = frozenset(i for i, variable in enumerate(inner.invars) if id(variable) not in used)
    return _unused[program]


def has_float_loop(program: Any) -> bool:
    """Whether there is, at any depth, a `while` loop that carries floats and has no gradient of its own."""
    for eqn in program.eqns:
        if eqn.primitive.name.startswith("custom_vjp"):
            continue
        if eqn.primitive.name == "while" and any(jnp.issubdtype(v.aval.dtype, jnp.inexact) for v in eqn.outvars):
            return True
        if any(has_float_loop(inner) for inner in _programs_in(eqn.params)):
            return True
    return False


def has_collective(program: Any, axis: str) -> bool:
    """Whether there is, at any depth, an operation in which the devices along a mesh axis meet."""
    for eqn in program.eqns:
        axes = eqn.params.get("axes", eqn.params.get("axis_name", ()))
        if eqn.primitive.name != "axis_index" and axis in (axes if isinstance(axes, tuple | list) else (axes,)):
            return True
        if any(has_collective(inner, axis) for inner in _programs_in(eqn.params)):
            return True
    return False


def _programs_in(params: Params) -> Iterator[Any]:
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, Jaxpr | ClosedJaxpr):
                yield item


def runs_in_python(primitive: Primitive, *, eagerly: bool) -> bool:
    """Whether `run_in_python` knows the operation; loops and branches only where values are known."""
    return primitive.name in _CALLS or (eagerly and primitive.name in _CONTROL_FLOW)


def run_in_python(primitive: Primitive, args: Sequence[Any], params: Params) -> list[Any]:
    """Run an operation's programs one operation at a time, each of them seen by the current trace."""
    if primitive.name in _CALLS:
        return run_program(params["jaxpr"], *args)
    return _CONTROL_FLOW[primitive.name](args, params)


def run_program(program: Any, *args: Any) -> list[Any]:
    """Run a program one operation at a time."""
    closed = program if isinstance(program, ClosedJaxpr) else ClosedJaxpr(program, ())
    # A result that is a number in the program's text comes as such.
    return [jnp.asarray(result) for result in jaxpr_as_fun(closed)(*args)]


def _run_cond(args: Sequence[Any], params: Params) -> list[Any]:
    branches = params["branches"]
    chosen = min(max(int(args[0]), 0), len(branches) - 1)
    return run_program(branches[chosen], *args[1:])


def _run_while(args: Sequence[Any], params: Params) -> list[Any]:
    num_cond, num_body = params["cond_nconsts"], params["body_nconsts"]
    cond_consts, body_consts = args[:num_cond], args[num_cond:][:num_body]
    carry = args[num_cond + num_body :]
    while run_program(params["cond_jaxpr"], *cond_consts, *carry)[0]:
        carry = run_program(params["body_jaxpr"], *body_consts, *carry)
    return list(carry)


def _run_scan(args: Sequence[Any], params: Params) -> list[Any]:
    num_consts, num_carry = scan_sizes(params)
    consts, carry, scanned = args[:num_consts], args[num_consts:][:num_carry], args[num_consts + num_carry :]
    order = range(params["length"])[:: -1 if params["reverse"] else 1]
    rows: dict[int, Sequence[Any]] = {}
    for i in order:
        results = run_program(params["jaxpr"], *consts, *carry, *(array[i] for array in scanned))
        carry, rows[i] = results[:num_carry], results[num_carry:]
    columns = zip(*(rows[i] for i in sorted(rows)), strict=True)
    return [*carry, *(jnp.stack(column) for column in columns)]


_CALLS = frozenset({"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"})
_CONTROL_FLOW: dict[str, Callable[[Sequence[Any], Params], list[Any]]] = {
    "cond": _run_cond,
    "scan": _run_scan,
    "while": _run_while,
}
