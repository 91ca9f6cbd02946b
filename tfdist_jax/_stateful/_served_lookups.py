"""Lookups in cells on servers: of a cell in which a program only looks rows up, which rows these are is computed before it reads."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, final

from jax.extend.core import Jaxpr, JaxprEqn, Literal

from tfdist_jax._stateful._capture import Captured


@final
@dataclasses.dataclass(frozen=True)
class Lookups:
    """The parts of a program with lookups.

    Attributes:
        indices: What is computed of its arguments alone, for the lookups.
        of_cells: The lookups in each cell, by the cell's place among those of the program.
        rest: All else.
    """

    indices: list[JaxprEqn]
    of_cells: dict[int, list[JaxprEqn]]
    rest: list[JaxprEqn]


def find_lookups(captured: Captured) -> Lookups:
    """Find the served cells of which a program needs some rows only, fewer than there are."""
    jaxpr = captured.jaxpr.jaxpr
    first = len(jaxpr.invars) - len(captured.cells)
    known = _computed_of(captured, [*jaxpr.constvars, *jaxpr.invars[:first]])
    of_cells = {}
    for place, (cell, var) in enumerate(zip(captured.cells, jaxpr.invars[first:], strict=True)):
        found = _lookups_in(captured, var, known) if cell.storage.is_served else None
        if found and _are_smaller([out for eqn in found if not _is_copy(eqn) for out in eqn.outvars], var):
            of_cells[place] = found
    lookups = [eqn for eqns in of_cells.values() for eqn in eqns]
    indices = _needed_for(lookups, jaxpr, known)
    own = {id(eqn) for eqn in (*lookups, *indices)}
    return Lookups(indices, of_cells, [eqn for eqn in jaxpr.eqns if id(eqn) not in own])


def variables_of(atoms: Sequence[Any]) -> list[Any]:
    """Return those of some operands that are no constants."""
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def _computed_of(captured: Captured, arguments: Sequence[Any]) -> set[Any]:
    """Return the variables that depend on nothing but a program's arguments, and may be computed before it reads."""
    known = set(arguments)
    for eqn in captured.jaxpr.jaxpr.eqns:
        if not eqn.effects and known.issuperset(variables_of(eqn.invars)) and not _is_update(captured, eqn):
            known.update(eqn.outvars)
    return known


def _lookups_in(captured: Captured, cell: Any, known: set[Any]) -> list[JaxprEqn] | None:
    """Return the calls in which a program looks rows up in a cell; None if it needs the cell for anything else."""
    jaxpr = captured.jaxpr.jaxpr
    same, found = {cell}, []
    for eqn in jaxpr.eqns:
        uses = [i for i, var in enumerate(eqn.invars) if not isinstance(var, Literal) and var in same]
        if not uses:
            continue
        if _is_update(captured, eqn):
            # Where the change is made, the cell's own value is at hand.
            befores = len(eqn.invars) - len(captured.updates[eqn.params["name"]].cells)
            if any(i < befores or eqn.invars[i] is not cell for i in uses):
                return None
        elif _is_copy(eqn):
            same.update(eqn.outvars)
            found.append(eqn)
        elif uses == [0] and _is_lookup(eqn) and known.issuperset(variables_of(eqn.invars[1:])):
            found.append(eqn)
        else:
            return None
    return None if same.intersection(variables_of(jaxpr.outvars)) else found


def _is_update(captured: Captured, eqn: JaxprEqn) -> bool:
    return eqn.params.get("name", "") in captured.updates


def _is_copy(eqn: JaxprEqn) -> bool:
    return eqn.primitive.name == "copy"


def _is_lookup(eqn: JaxprEqn) -> bool:
    """Whether all that a call does to its first operand is to take parts of it, such as `jnp.take` does."""
    if eqn.primitive.name == "gather":
        return True
    inner = eqn.params.get("jaxpr")
    if eqn.primitive.name not in ("jit", "pjit") or eqn.effects or inner is None:
        return False
    table = inner.jaxpr.invars[0]
    users = [each for each in inner.jaxpr.eqns if table in variables_of(each.invars)]
    return table not in variables_of(inner.jaxpr.outvars) and all(
        each.invars[0] is table and table not in variables_of(each.invars[1:]) and _is_lookup(each) for each in users
    )


def _needed_for(lookups: Sequence[JaxprEqn], jaxpr: Jaxpr, known: set[Any]) -> list[JaxprEqn]:
    """Return what has to be computed of a program's arguments before lookups."""
    needed = {var for eqn in lookups for var in variables_of(eqn.invars) if var in known}
    chosen = []
    for eqn in reversed(jaxpr.eqns):
        if needed.intersection(eqn.outvars):
            chosen.append(eqn)
            needed.update(variables_of(eqn.invars))
    return chosen[::-1]


def _are_smaller(rows: Sequence[Any], table: Any) -> bool:
    """Whether rows take less than the table; not if their number is not known, as in a program that is saved for any."""
    return all(isinstance(size, int) for var in rows for size in var.aval.shape) and bytes_of(rows) < bytes_of([table])


def bytes_of(variables: Sequence[Any]) -> int:
    """Return how much variables of a program take."""
    return sum(math.prod(var.aval.shape) * var.aval.dtype.itemsize for var in variables)
