"""Plans: programs that use cells on servers in other processes, as those run them."""

import collections
import dataclasses
import itertools
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import jax
import numpy as np
from jax.extend.core import Literal

from tfdist_jax._servers import Call, Message, Part, Plan, Round, ServerCall
from tfdist_jax._stateful._remote_storage import RemoteStorage, Servers
from tfdist_jax._stateful._served_assignments import AtOnce, calls_host, needed_for
from tfdist_jax._stateful._served_parts import ServedParts
from tfdist_jax._stateful._served_stages import Stage, Update, compile_part
from tfdist_jax._stateful._state import Cell, cell_name

_names = itertools.count()


@final
class PlannedProgram:
    """A program, cut into what a worker computes, what servers do, and what is left to who starts it.

    Attributes:
        plan: What the worker runs. It takes the program's arguments, and then what `local` cells hold; it gives the program's results, and
            then what `assigned` cells are to hold.
        parts: The compiled parts that it names.
        servers: They reach the servers.
        local: The cells on no server.
        assigned: Those that are assigned in the end.
        kept: Which of the results are for cells of which each worker has its own, and stay in its process: a group for each storage.
        at_once: Those that are assigned when the others are read.
        changed: The cells on servers that it changes.
        calls_host: Whether it calls Python, as `tf.print` and assertions do, and so cannot leave this process.
    """

    def __init__(self, program: ServedParts, servers: Servers) -> None:
        """Make a plan of a program's parts, to be run with these servers.

        Raises:
            NotImplementedError: If it changes cells on servers together with others.
        """
        self.servers = servers
        self._program, self._jaxpr = program, program.captured.jaxpr.jaxpr
        self._number = _Numbers()
        self._steps: list[Call | Round] = []
        self.parts: dict[str, Part] = {}
        for var, value in zip(self._jaxpr.constvars, program.captured.jaxpr.consts, strict=True):
            self._number.set_constant(var, value)
        cells, assignments = program.captured.cells, program.assignments
        self._reads = dict(zip(map(id, cells), self._jaxpr.invars[len(self._jaxpr.invars) - len(cells) :], strict=True))
        self.local = [cell for cell in cells if not _is_remote(cell)]
        self.at_once = AtOnce(program.captured, [pair for pair in assignments.at_once if not _is_remote(pair[0])])
        in_the_end = [pair for pair in assignments.in_the_end if not _is_remote(pair[0])]
        self.assigned = [cell for cell, _ in in_the_end]
        own = collections.defaultdict[int, list[int]](list)
        for place, cell in enumerate(self.assigned, len(program.results)):
            if cell.storage.is_of_workers:
                own[id(cell.storage)].append(place)
        self.kept = list(own.values())
        self.changed = [cell for cell in program.captured.written if _is_remote(cell)]
        self.calls_host = calls_host(self._jaxpr, self._jaxpr.eqns)
        if self.calls_host:
            warnings.warn(
                "A function on servers calls Python, as `tf.print` and assertions do: it is computed in the coordinator's process, not in "
                "its worker's.",
                stacklevel=2,
            )
        self._pull()
        for stage in program.stages:
            self._compute(stage)
            self._update(stage.updates)
        self._assign_in_the_end()
        arguments = self._number.of_all([*program.arguments, *(self._reads[id(cell)] for cell in self.local)])
        results = self._number.of_all([*program.results, *(atom for _, atom in in_the_end)])
        name = f"plan {next(_names)}"
        self.plan = Plan(name, arguments, self._number.constants, tuple(self._steps), results)

    def _compute(self, stage: Stage) -> None:
        if stage.program is not None:
            part = self._part(stage.program, stage.inputs)
            self._steps.append(Call(part, self._number.of_all(stage.inputs), self._number.of_all(stage.outputs)))

    def _part(self, function: Callable[..., Any], variables: Sequence[Any], replaced: Sequence[int] = ()) -> str:
        types = tuple(jax.ShapeDtypeStruct(var.aval.shape, var.aval.dtype) for var in variables)
        name = f"part {next(_names)}"
        self.parts[name] = Part(name, function, types, tuple(replaced))
        return name

    def _pull(self) -> None:
        """Compute which rows are looked up, and ask each server for all that is read, at one moment.

        What is assigned at once is read in a message of its own: servers keep answers to changes for a while, and the rest may be large.
        """
        self._compute(self._program.indices)
        requests, changes = _Requests(), _Requests()
        changed = {id(cell) for cell, _ in self._program.assignments.at_once}
        for cell, var in self._program.reads:
            if _is_remote(cell):
                of_all = changes if id(cell) in changed else requests
                of_all[_server(cell)].reads.append((_key(cell), self._number.of(var)))
        for cell, var, stage in self._program.lookups:
            indices = [each for each in stage.inputs if each is not var]
            part = self._part(_taking([var, *indices], stage), [var, *indices])
            call = ServerCall(part, (_key(cell),), self._number.of_all(indices), self._number.of_all(stage.outputs))
            requests[_server(cell)].calls.append(call)
        of_servers: dict[int, list[tuple[Cell, Any]]] = collections.defaultdict(list)
        for cell, atom in self._program.assignments.at_once:
            if _is_remote(cell):
                of_servers[_server(cell)].append((cell, atom))
        for server, pairs in of_servers.items():
            at_once = AtOnce(self._program.captured, pairs)
            keys = tuple(map(_key, at_once.cells))
            part = self._part(at_once.program, [*at_once.reads, *at_once.inputs])
            changes[server].calls.append(
                ServerCall(part, keys, self._number.of_all(at_once.inputs), (None,) * len(keys), keys)
            )
        self._ask(requests, changes)

    def _ask(self, *requests: "_Requests") -> None:
        self._steps += [messages for each in requests if (messages := each.take())]

    def _update(self, updates: Sequence[Update]) -> None:
        """Send each server what changes its cells; what it needs of other servers' is asked before."""
        before, changes, changed = _Requests(), _Requests(), set[int]()
        for update in updates:
            calls = self._calls_of(update)
            needed = [each for call in calls for each in call.needs]
            if any(_key(cell) in changed for cell, _ in needed):
                self._ask(before, changes)
                changed.clear()
            for cell, number in needed:
                before[_server(cell)].reads.append((_key(cell), number))
            for call in calls:
                changes[call.server].calls.append(call.call)
            changed.update(map(_key, update.written))
        self._ask(before, changes)

    def _calls_of(self, update: Update) -> "list[_UpdateCall]":
        """Return an update's call for each server whose cells it changes; the first one gives the update's results, too."""
        for cell in update.written:
            if not _is_remote(cell):
                raise NotImplementedError(
                    f"A function changes {cell_name(cell)!r} together with variables on servers, but it is on none itself. Make it in the "
                    "strategy's scope."
                )
        servers = sorted({_server(cell) for cell in update.written})
        return [self._call_of(update, server, has_results=server == servers[0]) for server in servers]

    def _call_of(self, update: Update, server: int, *, has_results: bool) -> "_UpdateCall":
        inner = update.eqn.params["jaxpr"].jaxpr
        split, first_new = len(inner.invars) - len(update.cells), len(inner.outvars) - len(update.written)
        cell_of = dict(zip(inner.invars[split:], update.cells, strict=True))
        given = dict(zip(inner.invars[:split], update.eqn.invars, strict=False))
        given.update((inner.invars[split + place], atom) for place, atom in update.assigned.items())
        written = [i for i, cell in enumerate(update.written) if _server(cell) == server]
        results = range(first_new if has_results else 0)
        places = [*results, *(first_new + i for i in written)]
        atoms = [inner.outvars[i] for i in places]
        eqns, inputs = needed_for(atoms, inner.eqns)
        own = [var for var in inputs if var in cell_of and _is_remote(cell_of[var]) and _server(cell_of[var]) == server]
        others = list(inputs.difference(own))
        keys = {_key(update.written[i]) for i in written}
        changed = [i for i, var in enumerate(own) if _key(cell_of[var]) in keys]
        function = compile_part(inner, eqns, [*own, *others], atoms)
        part = self._part(function, [*own, *others], changed if update.changes_rows else ())
        needs, operands = [], []
        for var in others:
            if var in given:
                operands.append(self._number.of(given[var]))
            elif _is_remote(cell_of[var]):
                operands.append(self._number.new())
                needs.append((cell_of[var], operands[-1]))
            else:
                operands.append(self._number.of(self._reads[id(cell_of[var])]))
        outputs = [update.eqn.outvars[i] for i in places]
        call = ServerCall(
            part,
            tuple(_key(cell_of[var]) for var in own),
            tuple(operands),
            tuple(self._number.of(var) if var in self._program.used else None for var in outputs),
            tuple(_key(update.written[i]) for i in written),
            tuple((_key(cell_of[var]), self._number.of(given[var])) for var in own if var in given),
        )
        return _UpdateCall(server, call, needs)

    def _assign_in_the_end(self) -> None:
        requests = _Requests()
        for cell, atom in self._program.assignments.in_the_end:
            if _is_remote(cell):
                requests[_server(cell)].assigned.append((_key(cell), self._number.of(atom)))
        self._ask(requests)


@final
@dataclasses.dataclass(frozen=True)
class _UpdateCall:
    """What one server does for an update, and the cells of other servers whose values it takes, with the numbers of these."""

    server: int
    call: ServerCall
    needs: list[tuple[Cell, int]]


@final
class _Numbers:
    """Numbers the values of a program, and keeps those that are known."""

    def __init__(self) -> None:
        self._next = itertools.count()
        self._of: dict[Any, int] = {}
        self.constants: dict[int, np.ndarray] = {}

    def new(self) -> int:
        return next(self._next)

    def of(self, atom: Any) -> int:
        if isinstance(atom, Literal):
            number = self.new()
            self._set(number, atom, atom.val)
            return number
        if atom not in self._of:
            self._of[atom] = self.new()
        return self._of[atom]

    def of_all(self, atoms: Iterable[Any]) -> tuple[int, ...]:
        return tuple(map(self.of, atoms))

    def set_constant(self, variable: Any, value: Any) -> None:
        self._set(self.of(variable), variable, value)

    def _set(self, number: int, atom: Any, value: Any) -> None:
        self.constants[number] = np.asarray(value, atom.aval.dtype)


@final
class _Request:
    """What a server is to be asked."""

    def __init__(self) -> None:
        self.reads: list[tuple[int, int]] = []
        self.calls: list[ServerCall] = []
        self.assigned: list[tuple[int, int]] = []


@final
class _Requests(collections.defaultdict[int, _Request]):
    """What servers are to be asked, by their numbers."""

    def __init__(self) -> None:
        super().__init__(_Request)

    def take(self) -> Round:
        """Return the messages, and start anew."""
        messages = tuple(
            Message(server, tuple(asked.reads), tuple(asked.calls), tuple(asked.assigned))
            for server, asked in sorted(self.items())
        )
        self.clear()
        return messages


def _taking(order: Sequence[Any], stage: Stage) -> Callable[..., Any]:
    """Return a stage's computation as a function of its inputs in another order."""
    places = [next(i for i, var in enumerate(order) if var is each) for each in stage.inputs]
    return jax.jit(lambda *arrays: stage.program(*(arrays[i] for i in places)))


def _is_remote(cell: Cell) -> bool:
    return isinstance(cell.storage, RemoteStorage)


def _server(cell: Any) -> int:
    return cell.storage.index


def _key(cell: Cell) -> int:
    return cell.stored.number
