"""What a program on servers assigns, besides what its updates do: some of it at once, when the program reads, and the rest in its end."""

import dataclasses
from collections.abc import Sequence
from typing import Any, final

from jax.extend.core import Jaxpr, JaxprEqn

from tfdist_jax._autodiff._tape_trace import unseen_by_tapes
from tfdist_jax._global_batch._programs import equations
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


@final
class AtOnce:
    """What computes the values of cells that are assigned at once, together.

    Attributes:
        cells: The cells.
        reads: The variables that stand for what they hold.
        inputs: The variables that it takes of the program's arguments, behind what the cells hold.
        program: It, compiled.
    """

    def __init__(self, captured: Captured, pairs: Sequence[tuple[Cell, Any]]) -> None:
        """Compile what computes the values of some of `Assignments.at_once`."""
        jaxpr = captured.jaxpr.jaxpr
        read = _reads_of(captured)
        self.cells = [cell for cell, _ in pairs]
        self.reads = [read[id(cell)] for cell in self.cells]
        atoms = [atom for _, atom in pairs]
        eqns, inputs = needed_for(atoms, jaxpr.eqns)
        self.inputs = list(inputs.difference(self.reads))
        self.program = compile_part(jaxpr, eqns, [*self.reads, *self.inputs], atoms)

    def assign(self, values: Values) -> list[tuple[Cell, Any, Any]]:
        """Assign them; to be called where no other thread changes cells.

        Returns:
            The cells, with what they have held before and what they hold now.
        """
        if not self.cells:
            return []
        device = server_of(self.cells)
        before = [cell.stored for cell in self.cells]
        with unseen_by_tapes():
            held = [bring(cell.storage.load(cell.stored), device) for cell in self.cells]
            given = [bring(array, device) for array in values.take(self.inputs)]
            for cell, new in zip(self.cells, self.program(*held, *given), strict=True):
                store(cell, new)
        return [(cell, old, cell.stored) for cell, old in zip(self.cells, before, strict=True)]


def find_assignments(captured: Captured, stages: Sequence[Stage]) -> Assignments:
    """Find what a program, whose updates are in `stages`, assigns to cells."""
    jaxpr = captured.jaxpr.jaxpr
    read = _reads_of(captured)
    arguments = {*jaxpr.constvars, *jaxpr.invars}.difference(read.values())
    updates: list[Update] = [update for stage in stages for update in stage.updates]
    applied = {var for update in updates for var in update.new_values}
    updated = {id(cell) for update in updates for cell in update.cells}
    values = jaxpr.outvars[len(jaxpr.outvars) - len(captured.written) :]
    found = Assignments([], [], [])
    for cell, atom in zip(captured.written, values, strict=True):
        if is_one_of(atom, applied):
            continue
        needed, inputs = needed_for([atom], jaxpr.eqns)
        is_change = read[id(cell)] in inputs
        # Nobody else changes what is a worker's own.
        is_shared = not cell.storage.is_of_workers
        is_free = is_shared and id(cell) not in updated and inputs <= {*arguments, read[id(cell)]}
        if (
            is_change
            and is_free
            and not any(_is_update(captured, eqn) for eqn in needed)
            and not calls_host(jaxpr, needed)
        ):
            found.at_once.append((cell, atom))
            continue
        found.in_the_end.append((cell, atom))
        if is_change and is_shared and not cell.storage.is_served:
            found.alone.append(cell)
    return found


def _reads_of(captured: Captured) -> dict[int, Any]:
    """Return the variable that stands for what each cell holds, by the cell's identity."""
    variables = captured.jaxpr.jaxpr.invars
    return {
        id(cell): var
        for cell, var in zip(captured.cells, variables[len(variables) - len(captured.cells) :], strict=True)
    }


def needed_for(atoms: Sequence[Any], eqns: Sequence[JaxprEqn]) -> tuple[list[JaxprEqn], set[Any]]:
    """Return the operations, in order, that compute some values, and the variables that they take."""
    needed, chosen = set(variables_of(atoms)), []
    for eqn in reversed(eqns):
        if needed.intersection(eqn.outvars):
            chosen.append(eqn)
            needed.update(variables_of(eqn.invars))
    return chosen[::-1], needed.difference(var for eqn in chosen for var in eqn.outvars)


def calls_host(jaxpr: Jaxpr, eqns: Sequence[JaxprEqn]) -> bool:
    """Whether operations have effects or call Python, which might wait for a thread that waits for the cells."""
    part = jaxpr.replace(eqns=list(eqns), debug_info=jaxpr.debug_info.with_unknown_names())
    return any(eqn.effects or "callback" in eqn.primitive.name for eqn in equations(part))


def _is_update(captured: Captured, eqn: JaxprEqn) -> bool:
    return eqn.params.get("name", "") in captured.updates
