"""Programs that read or change cells on servers: parts that a worker computes, and between them updates that the servers apply."""

import collections
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxpr_as_fun

from tfdist_jax._autodiff._tape import is_recording, observe_read
from tfdist_jax._autodiff._tape_trace import unseen_by_tapes
from tfdist_jax._global_batch._row_analysis import equations
from tfdist_jax._internals import default_device, setting
from tfdist_jax._signals import deferring_signals
from tfdist_jax._stateful._capture import OUTCOME_CHECKS, Captured, StatefulProgram, capture, copy_what_others_hold
from tfdist_jax._stateful._served_lookups import bytes_of, find_lookups, variables_of
from tfdist_jax._stateful._served_storage import ServedStorage, Traffic, bring
from tfdist_jax._stateful._state import CELLS, Cell


def make_program(fn: Callable[..., Any], arrays: Sequence[Any], **options: Any) -> "CellProgram":
    """Trace `fn` and compile it, as `StatefulProgram`; cut into parts if it reads or changes cells on servers.

    Args:
        fn: The function.
        arrays: Arrays, or `jax.ShapeDtypeStruct`, like those that it will be called with.
        options: Of `StatefulProgram`.
    """
    captured = capture(fn, arrays)
    if any(cell.storage.is_served for cell in captured.cells):
        return ServedProgram(captured)
    name = options.pop("name", None) or getattr(fn, "__name__", "step")
    return StatefulProgram(captured, arrays, name=name, **options)


@final
class ServedProgram:
    """A traced function that reads cells on servers, or changes them.

    A worker computes with values that it has read when the program began, and waits for its results; then the updates that need them are
    applied, one after another and those of one stage together, to the values that the servers have by then. Threads may run a program at
    once. What is read are the cells that the worker computes with, of some of them the rows that are looked up.

    Attributes:
        is_whole: As of `StatefulProgram`.
    """

    is_whole = True

    def __init__(self, captured: Captured) -> None:
        """Cut `captured` into its parts."""
        self.captured, self.mesh = captured, None
        lookups = find_lookups(captured)
        self._stages = _cut(captured, lookups.rest)
        jaxpr = captured.jaxpr.jaxpr
        split = len(jaxpr.invars) - len(captured.cells)
        self._arguments, reads = jaxpr.invars[:split], jaxpr.invars[split:]
        self._indices = _make_stage(jaxpr, lookups.indices, [])
        self._lookups = [
            (captured.cells[place], reads[place], _make_stage(jaxpr, eqns, []))
            for place, eqns in lookups.of_cells.items()
        ]
        split = len(jaxpr.outvars) - len(captured.written)
        self._results = jaxpr.outvars[:split]
        applied = {var for stage in self._stages for update in stage.updates for var in update.new_values}
        pairs = zip(captured.written, jaxpr.outvars[split:], strict=True)
        self._assigned = [(cell, var) for cell, var in pairs if var not in applied]
        self._used = {var for stage in self._stages for var in stage.used}
        self._used.update(variables_of([*self._results, *(var for _, var in self._assigned)]))
        self._reads = [(cell, var) for cell, var in zip(captured.cells, reads, strict=True) if var in self._used]
        self._traffic = list({id(one): one for one in map(_traffic_of, captured.cells) if one is not None}.values())

    def __call__(self, arrays: Sequence[Any]) -> Any:
        """Run the program on `arrays` and the cells' present values."""
        if OUTCOME_CHECKS and setting("jax_debug_nans"):
            with jax.debug_nans(False):  # JAX's check would come first.
                return self(arrays)
        values = _Values(self.captured.jaxpr)
        values.give(self._arguments, arrays)
        moments = self._read(values)
        for stage in self._stages:
            stage.compute(values, default_device())
            given = values.take(stage.operands)
            self._check(given)
            if not stage.updates:
                continue
            # On the server, whoever comes next would wait for this worker's computation.
            jax.block_until_ready(given)
            size = sum(array.nbytes for array in given)
            moments = [(traffic, traffic.push(size, moment)) for traffic, moment in moments]
            stage.apply(values, self._used)
        device = default_device()
        results = [bring(array, device) for array in values.take(self._results)]
        assigned = values.take([var for _, var in self._assigned])
        self._check([*results, *assigned])
        with CELLS, deferring_signals():
            for (cell, _), value in zip(self._assigned, assigned, strict=True):
                _store(cell, value)
        return jax.tree.unflatten(self.captured.out_tree, results)

    def lower(self, arrays: Sequence[Any]) -> Any:
        """Lower what a worker computes first, without running it."""
        values = _Values(self.captured.jaxpr)
        values.give(self._arguments, arrays)
        self._read(values)
        return self._stages[0].program.lower(*values.take(self._stages[0].inputs))

    @property
    def has_float_loop(self) -> bool:
        """Whether a tape could not follow the program: never, since its parts are what a tape sees."""
        return False

    def _read(self, values: "_Values") -> list[tuple[Traffic, Any]]:
        """Let `values` have what the worker needs of the cells, all as of one moment."""
        self._indices.compute(values, default_device())
        with CELLS:
            held = [(cell, var, cell.stored) for cell, var in self._reads]
            tables = [(cell, var, cell.stored, stage) for cell, var, stage in self._lookups]
            moments = [(traffic, traffic.pull(self._size(traffic))) for traffic in self._traffic]
        for cell, var, array in held:
            values.give([var], [_load(cell, array)])
        for cell, var, array, stage in tables:
            if is_recording():
                values.give([var], [_load(cell, array)])
                stage.compute(values, default_device())
            else:
                values.give([var], [array])
                stage.compute(values, _server_of([cell]))
                values.forget(var)
        return moments

    def _size(self, traffic: Traffic) -> int:
        """Return the bytes that the worker gets of the cells of a server."""
        variables = [var for cell, var in self._reads if _traffic_of(cell) is traffic]
        variables += [var for cell, _, stage in self._lookups if _traffic_of(cell) is traffic for var in stage.outputs]
        return bytes_of(variables)

    def _check(self, computed: Sequence[jax.Array]) -> None:
        """Raise what a part of the program, which has `computed` something, is to raise."""
        if self.captured.checks:
            jax.effects_barrier()
            for check in self.captured.checks:
                check()
        for check_outcome in OUTCOME_CHECKS:
            check_outcome(computed)


CellProgram = StatefulProgram | ServedProgram
"""A compiled function that reads and writes cells."""


def _traffic_of(cell: Cell) -> Traffic | None:
    return cell.storage.traffic if isinstance(cell.storage, ServedStorage) else None


def _server_of(cells: Sequence[Cell]) -> Any:
    """Return the device of the (first) server of some cells; None if none is served."""
    return next((s.server for s in (cell.storage for cell in cells) if isinstance(s, ServedStorage)), None)


def _load(cell: Cell, held: Any) -> Any:
    """Return what a cell holds on the worker's device, seen by tapes."""
    array = cell.storage.load(held)
    return observe_read(cell, array, trainable=cell.trainable) if is_recording() else array


@final
class _Values:
    """The values of a program's variables in one run."""

    def __init__(self, program: ClosedJaxpr) -> None:
        self._values: dict[Any, Any] = dict(zip(program.jaxpr.constvars, program.consts, strict=True))

    def read(self, atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else self._values[atom]

    def take(self, atoms: Sequence[Any]) -> list[Any]:
        return list(map(self.read, atoms))

    def give(self, variables: Sequence[Any], arrays: Sequence[Any]) -> None:
        self._values.update(zip(variables, arrays, strict=True))

    def forget(self, variable: Any) -> None:
        del self._values[variable]


@final
@dataclasses.dataclass(frozen=True)
class _Update:
    """A call that changes cells.

    Attributes:
        eqn: The call, of what has been computed for it and what its cells hold; it gives results and what `written` cells are to hold.
        cells: The cells that it reads.
        assigned: Those of them that the program has assigned before, by their places, and the variables that stand for these values.
        written: The cells that it changes.
    """

    eqn: JaxprEqn
    cells: tuple[Cell, ...]
    assigned: Mapping[int, Any]
    written: tuple[Cell, ...]

    @property
    def operands(self) -> list[Any]:
        return self.eqn.invars[: len(self.eqn.invars) - len(self.cells)]

    @property
    def new_values(self) -> list[Any]:
        return self.eqn.outvars[len(self.eqn.outvars) - len(self.written) :]

    def apply(self, operands: Sequence[jax.Array], values: _Values, used: set[Any]) -> None:
        """Change the cells, with `operands` that have been computed; to be called where no other thread does.

        Results that are `used` later are given to `values`. Rows replace what was there in the memory of their table, unless somebody else
        holds that: so those of a large table cost no copy of it.
        """
        for place, var in self.assigned.items():
            _store(self.cells[place], values.read(var))
        device = _server_of(self.cells)
        take = lambda cell: bring(cell.stored if cell.storage.is_served else cell.storage.load(cell.stored), device)
        state = list(map(take, self.written))
        rest = [take(cell) for cell in self._only_read]
        if self._changes_rows:
            state = list(map(jnp.copy, state)) if is_recording() else state
            copy_what_others_hold(state)
        outputs = self._run(state, rest, [bring(array, device) for array in operands])
        for var, value in zip(self.eqn.outvars, outputs, strict=True):
            if var in used:
                values.give([var], [value])
        for cell, value in zip(self.written, outputs[len(outputs) - len(self.written) :], strict=True):
            _store(cell, value)

    @functools.cached_property
    def _only_read(self) -> list[Cell]:
        written = {id(cell) for cell in self.written}
        return [cell for cell in self.cells if id(cell) not in written]

    @functools.cached_property
    def _changes_rows(self) -> bool:
        """Whether it changes parts of arrays, whose other parts should not be copied; where all changes, new memory costs as little."""
        return any(eqn.primitive.name.startswith("scatter") for eqn in equations(self.eqn.params["jaxpr"].jaxpr))

    @functools.cached_property
    def _run(self) -> Callable[..., list[jax.Array]]:
        program = jaxpr_as_fun(self.eqn.params["jaxpr"])

        def update(state: list[Any], rest: list[Any], operands: list[Any]) -> list[jax.Array]:
            held = dict(zip(map(id, (*self.written, *self._only_read)), (*state, *rest), strict=True))
            return program(*operands, *(held[id(cell)] for cell in self.cells))

        return jax.jit(update, donate_argnums=0 if self._changes_rows else ())


@final
@dataclasses.dataclass(frozen=True)
class _Stage:
    """What a worker computes, and the updates that need nothing else.

    Attributes:
        inputs: The variables that are given to the computation.
        outputs: Those that it gives.
        program: The computation, compiled.
        updates: The updates, in the program's order.
    """

    inputs: list[Any]
    outputs: list[Any]
    program: Any
    updates: list[_Update]

    @property
    def operands(self) -> list[Any]:
        return [var for update in self.updates for var in update.operands]

    @property
    def used(self) -> list[Any]:
        """The variables that are given to the computation and to the updates, besides the cells that these change."""
        assigned = [var for update in self.updates for var in update.assigned.values()]
        return [*self.inputs, *variables_of(self.operands), *variables_of(assigned)]

    def compute(self, values: _Values, device: Any) -> None:
        """Compute on a device, to which what is elsewhere, such as an update's results, is brought."""
        if self.outputs:
            values.give(self.outputs, self.program(*(bring(array, device) for array in values.take(self.inputs))))

    def apply(self, values: _Values, used: set[Any]) -> None:
        with unseen_by_tapes(), CELLS, deferring_signals():
            for update in self.updates:
                update.apply(values.take(update.operands), values, used)


def _store(cell: Cell, array: jax.Array) -> None:
    cell.stored = cell.storage.store(array, cell.stored)


def _cut(captured: Captured, eqns: Sequence[JaxprEqn]) -> list[_Stage]:
    """Return the stages of some of a program's operations: each computation and each update comes as soon as what it needs is there."""
    jaxpr = captured.jaxpr.jaxpr
    stages: collections.defaultdict[Any, int] = collections.defaultdict(int)
    computed: list[list[JaxprEqn]] = [[]]
    updates: list[list[_Update]] = [[]]
    # The variables that stand for what each cell holds, and not for what the program has computed to be assigned.
    current = {
        id(cell): {var}
        for cell, var in zip(captured.cells, jaxpr.invars[len(jaxpr.invars) - len(captured.cells) :], strict=True)
    }
    for eqn in eqns:
        update = captured.updates.get(eqn.params.get("name", ""))
        stage = max((stages[var] for var in eqn.invars if not isinstance(var, Literal)), default=0)
        if update is None:
            computed[stage].append(eqn)
            stages.update(dict.fromkeys(eqn.outvars, stage))
            continue
        befores = eqn.invars[len(eqn.invars) - len(update.cells) :]
        assigned = {
            i: var
            for i, (cell, var) in enumerate(zip(update.cells, befores, strict=True))
            if var not in current[id(cell)]
        }
        updates[stage].append(_Update(eqn, update.cells, assigned, update.written))
        stages.update(dict.fromkeys(eqn.outvars, stage + 1))
        for cell, var in zip(update.written, updates[stage][-1].new_values, strict=True):
            current[id(cell)].add(var)
        if stage + 1 == len(computed):
            computed.append([])
            updates.append([])
    return [_make_stage(jaxpr, *parts) for parts in zip(computed, updates, strict=True)]


def _make_stage(jaxpr: Jaxpr, eqns: list[JaxprEqn], updates: list[_Update]) -> _Stage:
    own = {id(eqn) for eqn in eqns}
    used_elsewhere = {
        var for eqn in jaxpr.eqns if id(eqn) not in own for var in eqn.invars if not isinstance(var, Literal)
    }
    used_elsewhere |= {var for var in jaxpr.outvars if not isinstance(var, Literal)}
    made = [var for eqn in eqns for var in eqn.outvars]
    outputs = [var for var in made if var in used_elsewhere]
    used = dict.fromkeys(var for eqn in eqns for var in eqn.invars if not isinstance(var, Literal))
    inputs = [var for var in used if var not in {*made}]
    part = jaxpr.replace(
        constvars=[], invars=inputs, outvars=outputs, eqns=eqns, debug_info=jaxpr.debug_info.with_unknown_names()
    )
    return _Stage(inputs, outputs, jax.jit(jaxpr_as_fun(ClosedJaxpr(part, ()))), updates)
