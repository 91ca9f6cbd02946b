"""What a program on servers assigns, besides what its updates do: some of it at once, when the program reads, and the rest in its end."""

import dataclasses
from collections.abc import Sequence
from typing import Any, final

from jax.extend.core import Jaxpr, JaxprEqn

from tfdist_jax._autodiff._tape_trace import unseen_by_tapes
from tfdist_jax._global_batch._row_analysis import equations
from tfdist_jax._stateful._capture import Captured
from tfdist_jax._stateful._served_lookups import variables_of
from tfdist_jax._stateful._served_stages import Stage, Update, Values, compile_part, is_one_of, server_of, store
from tfdist_jax._stateful._served_storage import bring
from tfdist_jax._stateful._state import Cell


@final
@dataclasses.dataclass(frozen=True)
class Assignments:
    """The cells that a program assigns, with the operands that stand for their values.

    Attributes:
        at_once: Those whose values depend on what they hold and the program's arguments alone, such as the states of random numbers: no
            other program changes them between reading and writing.
        in_the_end: The others.
        alone: The cells among the others, on no server, whose values depend on what they hold: a change by another program would be lost.
    """

    at_once: list[tuple[Cell, Any]]
    in_the_end: list[tuple[Cell, Any]]
    alone: list[Cell]
    _reads: list[tuple[Cell, Any]]
    _inputs: list[Any]
    _program: Any

    def assign_at_once(self, values: Values) -> None:
        """Assign what does not wait for the rest of the program; to be called where no other thread changes cells."""
        if not self.at_once:
            return
        device = server_of([cell for cell, _ in self.at_once])
        with unseen_by_tapes():
            held = {var: bring(cell.storage.load(cell.stored), device) for cell, var in self._reads}
            given = values.take([var for var in self._inputs if var not in held])
            arrays = iter([bring(array, device) for array in given])
            news = self._program(*(held[var] if var in held else next(arrays) for var in self._inputs))
            for (cell, _), new in zip(self.at_once, news, strict=True):
                store(cell, new)


def find_assignments(captured: Captured, stages: Sequence[Stage]) -> Assignments:
    """Find what a program, whose updates are in `stages`, assigns to cells."""
    jaxpr = captured.jaxpr.jaxpr
    split = len(jaxpr.invars) - len(captured.cells)
    read = {id(cell): var for cell, var in zip(captured.cells, jaxpr.invars[split:], strict=True)}
    updates: list[Update] = [update for stage in stages for update in stage.updates]
    applied = {var for update in updates for var in update.new_values}
    updated = {id(cell) for update in updates for cell in update.cells}
    values = jaxpr.outvars[len(jaxpr.outvars) - len(captured.written) :]
    assigned = [pair for pair in zip(captured.written, values, strict=True) if not is_one_of(pair[1], applied)]
    free = [(cell, atom) for cell, atom in assigned if id(cell) not in updated]
    given = {*jaxpr.constvars, *jaxpr.invars[:split], *(read[id(cell)] for cell, _ in free)}
    at_once, in_the_end, alone = [], [], []
    for cell, atom in assigned:
        needed, inputs = _needed_for([atom], jaxpr.eqns)
        is_change = read[id(cell)] in inputs
        is_plain = (
            inputs <= given and not any(_is_update(captured, eqn) for eqn in needed) and not _calls_host(jaxpr, needed)
        )
        if is_change and is_plain and read[id(cell)] in given:
            at_once.append((cell, atom))
            continue
        in_the_end.append((cell, atom))
        if is_change and not cell.storage.is_served:
            alone.append(cell)
    atoms = [atom for _, atom in at_once]
    eqns, inputs = _needed_for(atoms, jaxpr.eqns)
    reads = [(cell, read[id(cell)]) for cell, _ in free if read[id(cell)] in inputs]
    program = compile_part(jaxpr, eqns, list(inputs), atoms)
    return Assignments(at_once, in_the_end, alone, reads, list(inputs), program)


def _needed_for(atoms: Sequence[Any], eqns: Sequence[JaxprEqn]) -> tuple[list[JaxprEqn], set[Any]]:
    """Return the operations, in order, that compute some values, and the variables that they take."""
    needed, chosen = set(variables_of(atoms)), []
    for eqn in reversed(eqns):
        if needed.intersection(eqn.outvars):
            chosen.append(eqn)
            needed.update(variables_of(eqn.invars))
    return chosen[::-1], needed.difference(var for eqn in chosen for var in eqn.outvars)


def _calls_host(jaxpr: Jaxpr, eqns: list[JaxprEqn]) -> bool:
    """Whether operations have effects or call Python, which might wait for a thread that waits for the cells."""
    part = jaxpr.replace(eqns=eqns, debug_info=jaxpr.debug_info.with_unknown_names())
    return any(eqn.effects or "callback" in eqn.primitive.name for eqn in equations(part))


def _is_update(captured: Captured, eqn: JaxprEqn) -> bool:
    return eqn.params.get("name", "") in captured.updates
