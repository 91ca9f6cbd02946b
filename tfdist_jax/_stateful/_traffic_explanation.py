"""What a step with parameter servers reads and sends, told before it runs."""

import collections
import dataclasses
from os import PathLike
from pathlib import Path
from typing import Any, final

from jax.interpreters.partial_eval import dce_jaxpr

from tfdist_jax._explain._html import make_page
from tfdist_jax._explain._sections import Section, format_mib, write_sections
from tfdist_jax._program import BEFORE_RUN
from tfdist_jax._stateful._handed_over import is_handed_over
from tfdist_jax._stateful._served_lookups import bytes_of
from tfdist_jax._stateful._served_parts import ServedParts
from tfdist_jax._stateful._served_program import CellProgram, ServedProgram
from tfdist_jax._stateful._served_stages import Update
from tfdist_jax._stateful._state import Cell, cell_name


@final
@dataclasses.dataclass(frozen=True, repr=False)
class TrafficExplanation:
    """What travels in a step. As text, a report; `write_html` writes it as a page.

    Attributes:
        name: The step's name.
        workers: How many workers there are; None if the coordinator runs the step itself.
        max_staleness: How many other functions may end while one runs; None for any number.
        pulled: By server, the bytes that a worker reads of its variables in a step.
        pushed: By server, the bytes that a worker sends it in a step. What two servers need is sent to both.
        rows: Of variables of which rows alone are read: name, number of rows of them all, and bytes that are read.
        updates: How often in a step something is sent.
        given: The bytes of gradients that a worker gives to a round of all workers; None if it sends them to servers itself.
        backup_workers: For how many workers a round does not wait.
        sync_every: After how many functions of each worker their copies are put together; None if they have none.
    """

    name: str
    workers: int | None
    max_staleness: int | None
    pulled: dict[str, int]
    pushed: dict[str, int]
    rows: tuple[tuple[str, int, int], ...]
    updates: int
    given: int | None = None
    backup_workers: int = 0
    sync_every: int | None = None

    def __repr__(self) -> str:
        return write_sections(f"{self.name}, by {self._who}", self._sections())

    def write_html(self, path: str | PathLike[str]) -> None:
        """Write a page that needs no other files.

        Args:
            path: The file, which is replaced.
        """
        page = make_page(f"{self.name}, by {self._who}", None, self._sections())
        Path(path).write_text(page, encoding="utf-8")

    @property
    def _who(self) -> str:
        who = "the coordinator" if self.workers is None else f"{self.workers} worker(s)"
        return f"{who} with variables on {len(self.pulled)} server(s)"

    def _sections(self) -> list[Section]:
        table = [(name, format_mib(size), format_mib(self.pushed[name])) for name, size in self.pulled.items()]
        who = "The coordinator" if self.workers is None else "A worker"
        notes = [
            f"{who} reads {format_mib(sum(self.pulled.values()))} MiB in a step and sends {format_mib(sum(self.pushed.values()))} MiB, "
            f"in {self.updates} update(s). Where workers and servers are threads of one process, nothing goes over a network."
        ]
        notes += [
            f"Of {name}, which has {count} rows, only those are read that are looked up: {format_mib(size)} MiB."
            for name, count, size in self.rows
        ]
        if self.given is not None:
            notes.append(
                f"It gives {format_mib(self.given)} MiB of gradients to its round. The mean of a round's gradients is sent to the servers."
            )
        columns = ("server", "#MiB read a step", "#MiB sent a step")
        return [Section("Servers", columns, table, notes), Section("Staleness", notes=[self._staleness])]

    @property
    def _staleness(self) -> str:
        if self.workers is None:
            return _WITHOUT_WORKERS
        if self.sync_every is not None:
            return (
                "Each worker reads and changes copies of its own, and sees of others' what they had made when all were put together: after "
                f"{self.sync_every} function(s) of each (`sync_every={self.sync_every}`)."
            )
        if self.given is None:
            return _staleness(self.max_staleness)
        return (
            f"None: all gradients of a round are of the same values. A round waits for all workers but {self.backup_workers} "
            f"(`backup_workers={self.backup_workers}`), whose gradients are dropped."
        )


_WITHOUT_WORKERS = (
    "The coordinator runs this step itself. It has not seen updates that come while it does, of functions that workers run meanwhile: "
    "`join` before waits for them."
)


def _staleness(most: int | None) -> str:
    if most is None:
        return "Any number of other functions may end while one runs, whose updates it has not seen: `max_staleness` bounds it."
    if most == 0:
        return "None: functions run one after another, as they are scheduled (`max_staleness=0`)."
    return (
        f"While a function runs, at most {most} other(s) end, whose updates it has not seen (`max_staleness={most}`)."
    )


def tell_traffic(program: CellProgram, name: str, strategy: Any) -> None:
    """Let who asks for it know of a step of a training with parameter servers, that is about to run for the first time.

    Args:
        program: Any program; others tell of themselves.
        name: What it is called.
        strategy: The one that has the workers; another one, or none, if no worker runs the step.
    """
    tell = BEFORE_RUN.get()
    if tell is None or not isinstance(program, ServedProgram):
        return
    parts = ServedParts.of(program.captured)
    if any(cell.trainable or is_handed_over(cell) for cell in _changed(parts)):
        tell(_explain(parts, name, strategy), None, ())


def _explain(parts: ServedParts, name: str, strategy: Any) -> TrafficExplanation:
    options = getattr(strategy, "coordinator_options", None)
    workers, most = (None, None) if options is None else (len(strategy.workers), options["max_staleness"])
    given = [value for cell, value in parts.assignments.in_the_end if is_handed_over(cell)]
    pulled: collections.Counter[str] = collections.Counter()
    pushed: collections.Counter[str] = collections.Counter()
    for cell, variable in parts.reads:
        pulled.update(_of_server(cell, bytes_of([variable])))
    rows = []
    for cell, variable, stage in parts.lookups:
        size = bytes_of(stage.outputs)
        pulled.update(_of_server(cell, size))
        rows.append((cell_name(cell), variable.aval.shape[0], size))
    updates = [update for stage in parts.stages for update in stage.updates]
    for update in updates:
        pushed.update(_sent_for(update))
    for cell, value in parts.assignments.in_the_end:
        pushed.update(_of_server(cell, bytes_of([value])))
    servers = sorted({*pulled, *pushed})
    return TrafficExplanation(
        name,
        workers,
        most,
        {server: pulled[server] for server in servers},
        {server: pushed[server] for server in servers},
        tuple(rows),
        sum(bool(stage.updates) for stage in parts.stages),
        bytes_of(given) if given else None,
        getattr(strategy, "backup_workers", None) or 0,
        getattr(strategy, "sync_every", None),
    )


def _changed(parts: ServedParts) -> list[Cell]:
    updated = [cell for stage in parts.stages for update in stage.updates for cell in update.written]
    return [*updated, *(cell for cell, _ in parts.assignments.in_the_end)]


def _of_server(cell: Cell, size: int) -> dict[str, int]:
    return {str(cell.storage.place_name): size} if cell.storage.is_served else {}


def _sent_for(update: Update) -> dict[str, int]:
    """Return the bytes that each server needs for what it is to do of an update."""
    inner, operands = update.eqn.params["jaxpr"].jaxpr, update.operands
    places = [str(cell.storage.place_name) if cell.storage.is_served else None for cell in update.written]
    offset = len(inner.outvars) - len(places)
    sent = {}
    for place in {place for place in places if place is not None}:
        wanted = [i >= offset and places[i - offset] == place for i in range(len(inner.outvars))]
        _, needed = dce_jaxpr(inner, wanted)
        sent[place] = bytes_of([var for var, is_needed in zip(operands, needed, strict=False) if is_needed])
    return sent
