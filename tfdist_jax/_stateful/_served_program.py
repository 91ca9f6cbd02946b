"""Programs that read or change cells on servers: parts that a worker computes, and between them updates that the servers apply."""

import contextlib
import dataclasses
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import jax

from tfdist_jax._autodiff._tape import is_recording, observe_read
from tfdist_jax._coordinator import HeldArray, WorkerLostError, fetch
from tfdist_jax._internals import default_device, setting
from tfdist_jax._signals import deferring_signals
from tfdist_jax._stateful._capture import OUTCOME_CHECKS, Captured, StatefulProgram, capture
from tfdist_jax._stateful._handed_over import current_outbox
from tfdist_jax._stateful._remote_storage import RemoteStorage, Servers, as_array, renew
from tfdist_jax._stateful._round_checks import must_leave_weights_to_rounds
from tfdist_jax._stateful._served_assignments import AtOnce
from tfdist_jax._stateful._served_lookups import bytes_of
from tfdist_jax._stateful._served_parts import ServedParts
from tfdist_jax._stateful._served_plan import PlannedProgram
from tfdist_jax._stateful._served_stages import Constants, Values, server_of, store
from tfdist_jax._stateful._served_storage import ServedStorage, Traffic, bring
from tfdist_jax._stateful._stages import is_placed
from tfdist_jax._stateful._state import CELLS, Cell, cell_name
from tfdist_jax._stateful._worker_copies import WorkerCopies

_UNDER_TAPE = (
    "A tape records around a function that changes variables on servers in other processes, and would not see what their workers compute. "
    "Open the tape in the function, or call the function outside of it."
)
# Held by programs that change cells by themselves which are on no server: one after another.
_ONE_BY_ONE = threading.RLock()


def make_program(fn: Callable[..., Any], arrays: Sequence[Any], **options: Any) -> "CellProgram":
    """Trace `fn` and compile it, as `StatefulProgram`; cut into parts if it reads or changes cells on servers, or of workers.

    Args:
        fn: The function.
        arrays: Arrays, or `jax.ShapeDtypeStruct`, like those that it will be called with, before those of `captured.given`.
        options: Of `StatefulProgram`.

    Raises:
        NotImplementedError: If it is a closure's of a round, and changes weights by itself.
    """
    captured = capture(fn, arrays)
    must_leave_weights_to_rounds(captured)
    arrays = [*arrays, *(cell.stored for cell in captured.given)]
    if any(cell.storage.is_served or cell.storage.is_of_workers for cell in captured.cells):
        return ServedProgram(captured)
    name = options.pop("name", None) or getattr(fn, "__name__", "step")
    return StatefulProgram(captured, arrays, name=name, **options)


@final
class ServedProgram:
    """A traced function that reads cells on servers, or changes them.

    A worker computes with values that it has read when the program began, and waits for its results; then the updates that need them are
    applied, one after another and those of one stage together, to the values that the servers have by then. Threads may run a program at
    once. What is read are the cells that the worker computes with, of some of them the rows that are looked up. What is assigned is stored
    when the program has ended, but for what `Assignments` has found to be better stored at once.

    Attributes:
        is_whole: As of `StatefulProgram`.
        takes_held_arrays: Whether arguments may be arrays that the worker's process holds.
    """

    is_whole = True

    def __init__(self, captured: Captured) -> None:
        """Cut `captured` into its parts."""
        self.captured, self.mesh = captured, None
        self._parts = ServedParts.of(captured)
        self._constants = Constants(captured.jaxpr)
        servers = next((found for cell in captured.cells if (found := _servers_of(cell)) is not None), None)
        self._planned = None if servers is None else PlannedProgram(self._parts, servers)
        self.takes_held_arrays = self._planned is not None and not self._planned.at_once.cells
        self._at_once = AtOnce(captured, [] if self._planned else self._parts.assignments.at_once)
        self._traffic = list({id(one): one for one in map(_traffic_of, captured.cells) if one is not None}.values())
        self._checking = threading.RLock()
        self._is_settled = True
        if any(map(is_placed, captured.jaxpr.jaxpr.eqns)):
            warnings.warn(
                "`tf.device` has no effect in a function that uses variables on servers: its worker's device computes.",
                stacklevel=2,
            )

    def __call__(self, arrays: Sequence[Any]) -> Any:
        """Run the program on `arrays` and the cells' present values.

        Raises:
            RuntimeError: If another one has changed a cell, on no server, that this one changes, too.
        """
        if OUTCOME_CHECKS and setting("jax_debug_nans"):
            with jax.debug_nans(False):  # JAX's check would come first.
                return self(arrays)
        outbox = current_outbox()
        if outbox is not None:
            for cell in self.captured.cells:
                outbox.must_be_open(cell)
        values = Values(self._constants)
        if self._planned is not None and (self.captured.written or not is_recording()):
            if is_recording():
                raise NotImplementedError(_UNDER_TAPE)
            values.give(self._parts.arguments, arrays)
            with self._running():
                return self._run_plan(self._planned, values)
        values.give(self._parts.arguments, list(map(fetch, arrays)))
        if not (self._parts.assignments.alone or self.captured.checks):
            return self._run(values)
        with self._running():
            return self._run(values)

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        """Keep others from running while this one does, if what the checks have heard, or what is assigned, would not be its own."""
        with contextlib.ExitStack() as stack:
            if self._parts.assignments.alone:
                stack.enter_context(_ONE_BY_ONE)
            if self.captured.checks:
                stack.enter_context(self._checking)
                if not self._is_settled:  # An exception has ended the last run.
                    jax.effects_barrier()
                    for check in self.captured.checks:
                        with contextlib.suppress(Exception):
                            check()
            self._is_settled = False
            yield
            self._is_settled = True

    def _run(self, values: Values) -> Any:
        begun = self._read(values, begin=self._begin)
        with _taking_back(begun.assigned):
            return self._run_stages(values, begun)

    def _run_stages(self, values: Values, begun: "_Begun") -> Any:
        moments = begun.moments
        for stage in self._parts.stages:
            stage.compute(values, default_device())
            given = values.take(stage.operands)
            self._check(given)
            if not stage.updates:
                continue
            # On the server, whoever comes next would wait for this worker's computation.
            jax.block_until_ready(given)
            moments = _push(moments, [(update.written, values.take(update.operands)) for update in stage.updates])
            stage.apply(values, self._parts.used)
        device = default_device()
        results = [bring(array, device) for array in values.take(self._parts.results)]
        in_the_end = self._parts.assignments.in_the_end
        assigned = values.take([atom for _, atom in in_the_end])
        # What fails leaves a worker's copies as they were.
        jax.block_until_ready(
            [array for (cell, _), array in zip(in_the_end, assigned, strict=True) if cell.storage.is_of_workers]
        )
        self._check([*results, *assigned])
        _push(
            moments,
            [([cell], [value]) for (cell, _), value in zip(self._parts.assignments.in_the_end, assigned, strict=True)],
        )
        self._assign(assigned, begun.alone)
        return jax.tree.unflatten(self.captured.out_tree, results)

    def _run_plan(self, planned: PlannedProgram, values: Values) -> Any:
        """Let a worker's process run the program, and do what concerns cells of this one."""
        alone = self._parts.assignments.alone
        before = [cell.stored for cell in alone]
        with CELLS, deferring_signals():
            held = [cell.storage.load_for_plan(cell.stored) for cell in planned.local]
            assigned = self._assign_at_once(planned, values, held)
        with _taking_back(assigned):
            return self._finish_plan(planned, values, held, before)

    def _assign_at_once(
        self, planned: PlannedProgram, values: Values, held: list[Any]
    ) -> Sequence[tuple[Cell, Any, Any]]:
        """Assign to cells on no server what waits for nothing, but not again if the closure runs again; `held` is what it has read then."""
        if not planned.at_once.cells:
            return ()
        places = {id(cell): i for i, cell in enumerate(planned.local)}
        own = [places[id(cell)] for cell in planned.at_once.cells]
        record = planned.servers.record(planned.plan)
        if record:
            for place, array in zip(own, record["read"], strict=True):
                held[place] = array
            return ()
        record["read"] = [held[place] for place in own]
        return planned.at_once.assign(values)

    def _finish_plan(self, planned: PlannedProgram, values: Values, held: Sequence[Any], before: Sequence[Any]) -> Any:
        # A program of this process would take NumPy's arrays of 64 bits as narrower ones, too.
        given = zip(values.take(self._parts.arguments), self._parts.arguments, strict=True)
        arguments = [*(array.astype(var.aval.dtype, copy=False) for array, var in given), *held]
        if planned.calls_host or OUTCOME_CHECKS:
            outcome = planned.servers.run_here(planned.plan, planned.parts, arguments, self._check)
        else:
            outcome = planned.servers.run(planned.plan, planned.parts, arguments, planned.kept)
        if self._traffic:
            self._traffic[0].note(outcome.pulled_bytes, outcome.pushed_bytes, outcome.staleness)
        results: list[Any] = [array if isinstance(array, HeldArray) else as_array(array) for array in outcome.results]
        split = len(results) - len(planned.assigned)
        self._check(results)
        with CELLS, deferring_signals():
            self._must_be_unchanged(before)
            for cell, value in zip(planned.assigned, results[split:], strict=True):
                store(cell, value)
            for cell in planned.changed:
                renew(cell)
        return jax.tree.unflatten(self.captured.out_tree, results[:split])

    def _assign(self, values: Sequence[jax.Array], before: Sequence[Any]) -> None:
        with CELLS, deferring_signals():
            self._must_be_unchanged(before)
            for (cell, _), value in zip(self._parts.assignments.in_the_end, values, strict=True):
                store(cell, value)

    def _must_be_unchanged(self, before: Sequence[Any]) -> None:
        for cell, held in zip(self._parts.assignments.alone, before, strict=True):
            if cell.stored is not held:
                raise RuntimeError(
                    f"The variable {cell_name(cell)!r} has changed while a function ran that changes it, too: one of the changes would "
                    "be lost. Make it in the strategy's scope, or change it in no other function meanwhile."
                )

    def lower(self, arrays: Sequence[Any]) -> Any:
        """Lower what a worker computes first, without running it."""
        values = Values(self._constants)
        values.give(self._parts.arguments, list(map(fetch, arrays)))
        self._read(values, begin=lambda values: None)
        first = self._parts.stages[0]
        return (first.program or jax.jit(lambda *arrays: ())).lower(*values.take(first.inputs))

    @property
    def has_float_loop(self) -> bool:
        """Whether a tape could not follow the program: never, since its parts are what a tape sees."""
        return False

    def _begin(self, values: Values) -> "_Begun":
        """Count what is read, and assign what waits for nothing."""
        moments = [(traffic, traffic.pull(self._size(traffic))) for traffic in self._traffic]
        return _Begun(moments, self._at_once.assign(values), [cell.stored for cell in self._parts.assignments.alone])

    def _read(self, values: Values, *, begin: Callable[[Values], Any]) -> Any:
        """Let `values` have what the worker needs of the cells, all as of one moment; call `begin` then, and return what that returns."""
        self._parts.indices.compute(values, default_device())
        with CELLS, deferring_signals():
            held = [(cell, var, cell.stored) for cell, var in self._parts.reads]
            tables = [(cell, var, cell.stored, stage) for cell, var, stage in self._parts.lookups]
            begun = begin(values)
        for cell, var, array in held:
            values.give([var], [_load(cell, array)])
        for cell, var, array, stage in tables:
            if is_recording() or not isinstance(array, jax.Array):  # Else its server is in this process.
                values.give([var], [_load(cell, array)])
                stage.compute(values, default_device())
            else:
                values.give([var], [array])
                stage.compute(values, server_of([cell]))
                values.forget(var)
        return begun

    def _size(self, traffic: Traffic) -> int:
        """Return the bytes that the worker gets of the cells of a server."""
        variables = [var for cell, var in self._parts.reads if _traffic_of(cell) is traffic]
        variables += [
            var for cell, _, stage in self._parts.lookups if _traffic_of(cell) is traffic for var in stage.outputs
        ]
        return bytes_of(variables)

    def _check(self, computed: Sequence[jax.Array]) -> None:
        """Raise what a part of the program, which has `computed` something, is to raise."""
        if self.captured.checks:
            jax.effects_barrier()
            for check in self.captured.checks:
                check()
        for check_outcome in OUTCOME_CHECKS:
            check_outcome(computed)


@final
@dataclasses.dataclass(frozen=True)
class _Begun:
    """What has been when a run read its cells.

    Attributes:
        moments: The moment, for each server's traffic.
        assigned: The cells that were assigned at once, with what they held before and after.
        alone: What the cells hold that no other program may change meanwhile.
    """

    moments: list[tuple[Traffic, Any]]
    assigned: list[tuple[Cell, Any, Any]]
    alone: list[Any]


CellProgram = StatefulProgram | ServedProgram
"""A compiled function that reads and writes cells."""


@contextlib.contextmanager
def _taking_back(assigned: Sequence[tuple[Cell, Any, Any]]) -> Iterator[None]:
    """Let cells hold again what they have held before, in the place of what was assigned, if what comes next fails."""
    try:
        yield
    except WorkerLostError:
        raise  # It runs again, and does not assign once more.
    except BaseException:
        with CELLS, deferring_signals():
            for cell, old, new in assigned:
                if cell.stored is new:  # Else others have gone on from there.
                    cell.stored = old
        raise


def _servers_of(cell: Cell) -> Servers | None:
    """Return what reaches the processes that keep a cell, or their workers' copies of it; None if it is in this process."""
    return cell.storage.servers if isinstance(cell.storage, RemoteStorage | WorkerCopies) else None


def _traffic_of(cell: Cell) -> Traffic | None:
    return cell.storage.traffic if isinstance(cell.storage, ServedStorage) else None


def _push(
    moments: Sequence[tuple[Traffic, Any]], sent: Sequence[tuple[Sequence[Cell], Sequence[jax.Array]]]
) -> list[tuple[Traffic, Any]]:
    """Count what is sent together for changes of cells; return the traffic's next moments."""

    def push(traffic: Traffic, moment: Any) -> Any:
        own = [arrays for cells, arrays in sent if any(_traffic_of(cell) is traffic for cell in cells)]
        return traffic.push(sum(array.nbytes for arrays in own for array in arrays), moment) if own else moment

    return [(traffic, push(traffic, moment)) for traffic, moment in moments]


def _load(cell: Cell, held: Any) -> Any:
    """Return what a cell holds on the worker's device, seen by tapes."""
    array = cell.storage.load(held)
    return observe_read(cell, array, trainable=cell.trainable) if is_recording() else array
