"""Loops that might have no end with other numbers than real ones for some of a program's inputs."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from tfdist_jax._global_batch._programs import open_program, programs_inside, scan_operands
from tfdist_jax._global_batch._row_values import line_of
from tfdist_jax._pipeline._pullback import dependent


def find_loop(program: ClosedJaxpr, depends: Sequence[bool]) -> JaxprEqn | None:
    """Return a loop of which some inputs of a program decide how many rounds it has, without a limit; None if there is none.

    It is the innermost operation around that loop of which the user's line is known.

    Args:
        program: The program.
        depends: Of each of its inputs, whether it is one of these.
    """
    loops: list[JaxprEqn] = []
    _follow(program.jaxpr, depends, loops)
    return loops[0] if loops else None


def _follow(jaxpr: Jaxpr, depends: Sequence[bool], loops: list[JaxprEqn]) -> list[bool]:
    """Return which results depend on the inputs that do, and add such loops."""
    found = {var for var, is_one in zip(jaxpr.invars, depends, strict=True) if is_one}
    is_found = lambda atom: not isinstance(atom, Literal) and atom in found
    for eqn in jaxpr.eqns:
        given = [*map(is_found, eqn.invars)]
        if any(given):
            inside: list[JaxprEqn] = []
            results = _follow_inside(eqn, given, inside)
            loops += [loop if line_of(loop) else eqn for loop in inside]
            found.update(var for var, is_one in zip(eqn.outvars, results, strict=True) if is_one)
    return [*map(is_found, jaxpr.outvars)]


def _follow_inside(eqn: JaxprEqn, given: list[bool], loops: list[JaxprEqn]) -> list[bool]:
    name, programs = eqn.primitive.name, [*map(open_program, programs_inside(eqn))]
    if name == "while":
        return _follow_while(eqn, given, loops)
    if name == "scan":
        consts, carry, xs = scan_operands(eqn, given)
        return _follow_rounds(programs[0], consts, carry, xs, loops)
    if name == "cond":
        results = [_follow(branch, given[1:], loops) for branch in programs]
        return [given[0] or any(each) for each in zip(*results, strict=True)]
    if len(programs) == 1 and len(programs[0].invars) == len(eqn.invars):
        return _follow(programs[0], given, loops)
    if name != "pallas_call":  # A kernel's loops go over blocks.
        for program in programs:
            _follow(program, [True] * len(program.invars), loops)
    return [True] * len(eqn.outvars)


def _follow_while(eqn: JaxprEqn, given: list[bool], loops: list[JaxprEqn]) -> list[bool]:
    of_cond, of_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    consts, carry = given[of_cond : of_cond + of_body], given[of_cond + of_body :]
    carry = _follow_rounds(open_program(eqn.params["body_jaxpr"]), consts, carry, (), loops)
    known = [*given[:of_cond], *carry]
    (decides,) = _follow(open_program(eqn.params["cond_jaxpr"]), known, loops)
    loops += [eqn] * (decides and not _has_limit(eqn, known))
    return [decides or each for each in carry]


def _has_limit(eqn: JaxprEqn, depends: Sequence[bool]) -> bool:
    """Whether a loop goes on only while a counter, which each round adds a constant to, is below a limit.

    That is the same in all rounds, and does not depend on the inputs.

    Args:
        eqn: The loop.
        depends: Of what its condition is given, what depends on the inputs.
    """
    cond, body = (open_program(eqn.params[name]) for name in ("cond_jaxpr", "body_jaxpr"))
    of_cond, of_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    rounds = [*zip(cond.invars[of_cond:], body.invars[of_body:], body.outvars, strict=True)]
    counters = {var for var, before, after in rounds if _adds_constant(body, before, after)}
    given = [var for var, is_one in zip(cond.invars, depends, strict=True) if is_one]
    changes = dependent(cond.eqns, [*given, *(var for var, before, after in rounds if before is not after)])
    made = {var: each for each in cond.eqns for var in each.outvars}
    pending: list[Any] = [*cond.outvars]
    while pending:
        atom = pending.pop()
        one = None if isinstance(atom, Literal) else made.get(atom)
        name = "" if one is None else one.primitive.name
        if one is not None and name in _ALL:
            pending += one.invars
        elif one is not None and name in _LIMITS:
            counter, limit = one.invars if _LIMITS[name] else one.invars[::-1]
            if _before_conversion(counter, made) in counters and (isinstance(limit, Literal) or limit not in changes):
                return True
    return False


_ALL = {"and", "convert_element_type", "broadcast_in_dim"}
"""Operations of which the result is true only if all operands are."""

_LIMITS = {"lt": True, "le": True, "gt": False, "ge": False}
"""Comparisons, and whether the first operand is what is limited."""


def _adds_constant(body: Jaxpr, before: Any, after: Any) -> bool:
    """Whether a loop's body makes an integer greater by a positive constant."""
    made = next((eqn for eqn in body.eqns if after in eqn.outvars), None)
    if made is None or made.primitive.name != "add" or not jnp.issubdtype(before.aval.dtype, jnp.integer):
        return False
    one, other = made.invars if made.invars[0] is before else made.invars[::-1]
    return one is before and isinstance(other, Literal) and bool(np.all(other.val > 0))


def _before_conversion(atom: Any, made: Mapping[Any, JaxprEqn]) -> Any:
    """Return the variable that has become this one by conversions between types, None for a constant."""
    while not isinstance(atom, Literal) and atom in made and made[atom].primitive.name == "convert_element_type":
        (atom,) = made[atom].invars
    return None if isinstance(atom, Literal) else atom


def _follow_rounds(
    body: Jaxpr, consts: Sequence[bool], carry: Sequence[bool], xs: Sequence[bool], loops: list[JaxprEqn]
) -> list[bool]:
    """Return what depends on them of what is carried and of what else a body gives, after any number of rounds."""
    while True:
        results = _follow(body, [*consts, *carry, *xs], loops)
        joined = [before or after for before, after in zip(carry, results, strict=False)]
        if joined == [*carry]:
            return [*joined, *results[len(joined) :]]
        carry = joined
