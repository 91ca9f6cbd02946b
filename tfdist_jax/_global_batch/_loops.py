"""Loops whose number of rounds depends on some of a program's inputs: with other numbers than real ones they might have no end."""

from collections.abc import Sequence

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from tfdist_jax._global_batch._row_analysis import equations_inside, open_program, programs_inside, scan_operands


def find_loop(program: ClosedJaxpr, depends: Sequence[bool]) -> JaxprEqn | None:
    """Return a loop of which some inputs of a program decide how many rounds it has, or None.

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
            results = _follow_inside(eqn, given, loops)
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
        loops += [inner for inner in equations_inside(eqn) if inner.primitive.name == "while"]
    return [True] * len(eqn.outvars)


def _follow_while(eqn: JaxprEqn, given: list[bool], loops: list[JaxprEqn]) -> list[bool]:
    of_cond, of_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    consts, carry = given[of_cond : of_cond + of_body], given[of_cond + of_body :]
    carry = _follow_rounds(open_program(eqn.params["body_jaxpr"]), consts, carry, (), loops)
    (is_counted,) = _follow(open_program(eqn.params["cond_jaxpr"]), [*given[:of_cond], *carry], loops)
    loops += [eqn] * is_counted
    return [is_counted or each for each in carry]


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
