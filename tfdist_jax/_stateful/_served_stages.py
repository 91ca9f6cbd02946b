"""The parts of a program that changes cells on servers: computations, and the updates between them."""

import collections
import dataclasses
import functools
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxpr_as_fun

from tfdist_jax._autodiff._tape import is_recording
from tfdist_jax._autodiff._tape_trace import unseen_by_tapes
from tfdist_jax._global_batch._programs import equations
from tfdist_jax._signals import deferring_signals
from tfdist_jax._stateful._capture import Captured, copy_what_others_hold
from tfdist_jax._stateful._served_lookups import variables_of
from tfdist_jax._stateful._served_storage import EmbeddedServedStorage, bring
from tfdist_jax._stateful._state import CELLS, Cell


@final
class Constants:
    """The values of a program that are known, as arrays."""

    def __init__(self, program: ClosedJaxpr) -> None:
        """Take those of `program`."""
        pairs = zip(program.jaxpr.constvars, program.consts, strict=True)
        self.of_variables = {var: _as_array(value, var) for var, value in pairs}
        self._of_literals: dict[int, tuple[Literal, jax.Array]] = {}

    def of_literal(self, literal: Literal) -> jax.Array:
        """Return the array that a literal stands for, each time the same one."""
        if id(literal) not in self._of_literals:
            self._of_literals[id(literal)] = literal, _as_array(literal.val, literal)
        return self._of_literals[id(literal)][1]


def _as_array(value: Any, atom: Any) -> jax.Array:
    if isinstance(value, jax.Array):
        return value
    with jax.enable_x64(True):  # It is NumPy's, or of JAX's own kind.
        return jax.device_put(np.asarray(value, atom.aval.dtype))


@final
class Values:
    """The values of a program's variables in one run."""

    def __init__(self, constants: Constants) -> None:
        """Start with those that are known."""
        self._constants = constants
        self._values: dict[Any, Any] = dict(constants.of_variables)

    def take(self, atoms: Sequence[Any]) -> list[jax.Array]:
        """Return the values of variables and literals."""
        return [self._constants.of_literal(atom) if isinstance(atom, Literal) else self._values[atom] for atom in atoms]

    def give(self, variables: Sequence[Any], arrays: Sequence[Any]) -> None:
        """Set the values of variables."""
        self._values.update(zip(variables, arrays, strict=True))

    def forget(self, variable: Any) -> None:
        """Hold a variable's value no longer."""
        del self._values[variable]


@final
@dataclasses.dataclass(frozen=True)
class Update:
    """A call that changes cells.

    Attributes:
        eqn: The call, of what has been computed for it and what its cells hold; it gives results and what `written` cells are to hold.
        cells: The cells that it reads.
        assigned: Those of them that the program has assigned before, by their places, and the operands that stand for these values.
        written: The cells that it changes.
    """

    eqn: JaxprEqn
    cells: tuple[Cell, ...]
    assigned: Mapping[int, Any]
    written: tuple[Cell, ...]

    @property
    def operands(self) -> list[Any]:
        """What has been computed for it."""
        return self.eqn.invars[: len(self.eqn.invars) - len(self.cells)]

    @property
    def new_values(self) -> list[Any]:
        """The variables that stand for what its cells hold then."""
        return self.eqn.outvars[len(self.eqn.outvars) - len(self.written) :]

    def apply(self, operands: Sequence[jax.Array], values: Values, used: Container[Any]) -> None:
        """Change the cells, with `operands` that have been computed; to be called where no other thread does.

        Results that are `used` later are given to `values`. Rows replace what was there in the memory of their table, unless somebody else
        holds that: so those of a large table cost no copy of it.
        """
        for place, value in zip(self.assigned, values.take(list(self.assigned.values())), strict=True):
            store(self.cells[place], value)
        device = server_of(self.cells)
        take = lambda cell: bring(cell.stored if cell.storage.is_served else cell.storage.load(cell.stored), device)
        state = list(map(take, self.written))
        rest = [take(cell) for cell in self._only_read]
        if self.changes_rows:
            state = list(map(jnp.copy, state)) if is_recording() else state
            copy_what_others_hold(state)
        outputs = self._run(state, rest, [bring(array, device) for array in operands])
        for var, value in zip(self.eqn.outvars, outputs, strict=True):
            if var in used:
                values.give([var], [value])
        for cell, value in zip(self.written, outputs[len(outputs) - len(self.written) :], strict=True):
            store(cell, value)

    @functools.cached_property
    def _only_read(self) -> list[Cell]:
        written = {id(cell) for cell in self.written}
        return [cell for cell in self.cells if id(cell) not in written]

    @functools.cached_property
    def changes_rows(self) -> bool:
        """Whether it changes parts of arrays, whose other parts should not be copied; where all changes, new memory costs as little."""
        return any(eqn.primitive.name.startswith("scatter") for eqn in equations(self.eqn.params["jaxpr"].jaxpr))

    @functools.cached_property
    def _run(self) -> Callable[..., list[jax.Array]]:
        program = jaxpr_as_fun(self.eqn.params["jaxpr"])

        def update(state: list[Any], rest: list[Any], operands: list[Any]) -> list[jax.Array]:
            held = dict(zip(map(id, (*self.written, *self._only_read)), (*state, *rest), strict=True))
            return program(*operands, *(held[id(cell)] for cell in self.cells))

        return jax.jit(update, donate_argnums=0 if self.changes_rows else ())


@final
@dataclasses.dataclass(frozen=True)
class Stage:
    """What a worker computes, and the updates that need nothing else.

    Attributes:
        inputs: The variables that are given to the computation.
        outputs: Those that it gives.
        program: The computation, compiled; None if nobody would notice that it runs.
        updates: The updates, in the program's order.
    """

    inputs: list[Any]
    outputs: list[Any]
    program: Any
    updates: list[Update]

    @property
    def operands(self) -> list[Any]:
        """What is computed for the updates."""
        return [var for update in self.updates for var in update.operands]

    @property
    def used(self) -> list[Any]:
        """The variables that are given to the computation and to the updates, besides the cells that these change."""
        assigned = [atom for update in self.updates for atom in update.assigned.values()]
        return [*self.inputs, *variables_of(self.operands), *variables_of(assigned)]

    def compute(self, values: Values, device: Any) -> None:
        """Compute on a device, to which what is elsewhere, such as an update's results, is brought."""
        if self.program is not None:
            values.give(self.outputs, self.program(*(bring(array, device) for array in values.take(self.inputs))))

    def apply(self, values: Values, used: Container[Any]) -> None:
        """Apply the updates, together; results that are `used` later are given to `values`."""
        with unseen_by_tapes(), CELLS, deferring_signals():
            for update in self.updates:
                update.apply(values.take(update.operands), values, used)


def make_stage(jaxpr: Jaxpr, eqns: Sequence[JaxprEqn], updates: Sequence[Update] = ()) -> Stage:
    """Return a part of a program: some of its operations, whose results others use, and updates behind them."""
    own = {id(eqn) for eqn in eqns}
    used_elsewhere = {var for eqn in jaxpr.eqns if id(eqn) not in own for var in variables_of(eqn.invars)}
    used_elsewhere.update(variables_of(jaxpr.outvars))
    made = [var for eqn in eqns for var in eqn.outvars]
    outputs = [var for var in made if var in used_elsewhere]
    used = dict.fromkeys(var for eqn in eqns for var in variables_of(eqn.invars))
    inputs = [var for var in used if var not in {*made}]
    is_noticed = outputs or any(eqn.effects for eqn in eqns)
    return Stage(inputs, outputs, compile_part(jaxpr, eqns, inputs, outputs) if is_noticed else None, list(updates))


def compile_part(jaxpr: Jaxpr, eqns: Sequence[JaxprEqn], inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
    """Compile some operations of a program, as a function of some of its variables that returns some of its values."""
    part = jaxpr.replace(
        constvars=[],
        invars=list(inputs),
        outvars=list(outputs),
        eqns=list(eqns),
        debug_info=jaxpr.debug_info.with_unknown_names(),
    )
    return jax.jit(jaxpr_as_fun(ClosedJaxpr(part, ())))


def cut(captured: Captured, eqns: Sequence[JaxprEqn]) -> list[Stage]:
    """Return the stages of some of a program's operations: each computation and each update comes as soon as what it needs is there.

    Updates that touch one cell stay in the program's order.
    """
    jaxpr = captured.jaxpr.jaxpr
    stage_of: collections.defaultdict[Any, int] = collections.defaultdict(int)
    last_of_cell: collections.defaultdict[int, int] = collections.defaultdict(int)
    computed: collections.defaultdict[int, list[JaxprEqn]] = collections.defaultdict(list)
    updates: collections.defaultdict[int, list[Update]] = collections.defaultdict(list)
    # The variables that stand for what each cell holds, and not for what the program has computed to be assigned.
    reads = jaxpr.invars[len(jaxpr.invars) - len(captured.cells) :]
    current = {id(cell): {var} for cell, var in zip(captured.cells, reads, strict=True)}
    for eqn in eqns:
        update = captured.updates.get(eqn.params.get("name", ""))
        stage = max((stage_of[var] for var in variables_of(eqn.invars)), default=0)
        if update is None:
            computed[stage].append(eqn)
            stage_of.update(dict.fromkeys(eqn.outvars, stage))
            continue
        stage = max([stage, *(last_of_cell[id(cell)] for cell in update.cells)])
        last_of_cell.update((id(cell), stage) for cell in update.cells)
        stage_of.update(dict.fromkeys(eqn.outvars, stage + 1))
        befores = eqn.invars[len(eqn.invars) - len(update.cells) :]
        pairs = enumerate(zip(update.cells, befores, strict=True))
        assigned = {i: atom for i, (cell, atom) in pairs if not is_one_of(atom, current[id(cell)])}
        updates[stage].append(Update(eqn, update.cells, assigned, update.written))
        for cell, var in zip(update.written, updates[stage][-1].new_values, strict=True):
            current[id(cell)].add(var)
    return [make_stage(jaxpr, computed[i], updates[i]) for i in range(1 + max([0, *computed, *updates]))]


def is_one_of(atom: Any, variables: Container[Any]) -> bool:
    """Whether an operand is one of some variables, and no constant, which cannot be looked for."""
    return not isinstance(atom, Literal) and atom in variables


def server_of(cells: Sequence[Cell]) -> Any:
    """Return the device of the (first) server of some cells; None if none is served."""
    return next((s.server for s in (cell.storage for cell in cells) if isinstance(s, EmbeddedServedStorage)), None)


def store(cell: Cell, array: Any) -> None:
    """Let a cell hold an array, which a worker's process may hold for it."""
    cell.stored = cell.storage.store(array, cell.stored)
