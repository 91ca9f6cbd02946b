"""Cells of which each worker has a copy of its own, which closures read and change, until all are put together."""

import contextlib
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.core import Tracer

from tfdist_jax._coordinator import DataLostError, HeldArray, WorkerLostError, closure_memory, current_worker, fetch
from tfdist_jax._internals import default_device
from tfdist_jax._sharding._mesh import Device
from tfdist_jax._signals import deferring_signals
from tfdist_jax._stateful._remote_storage import Servers
from tfdist_jax._stateful._served_storage import bring
from tfdist_jax._stateful._state import CELLS, CLOSURE_KIND, Cell, cell_name
from tfdist_jax._stateful._storage import Storage
from tfdist_jax._thread_state import having

_TRAINING = "a closure that trains its worker's own copies"


@final
class LocalTraining:
    """What one run of a closure does to its worker's copies.

    Attributes:
        has_changed: Whether it has changed any.
    """

    def __init__(self) -> None:
        """Have changed nothing."""
        self.has_changed = False


@contextlib.contextmanager
def training_locally() -> Iterator[LocalTraining]:
    """Note what the closure that this thread runs does to its worker's copies."""
    memory = closure_memory()
    training = memory[_TRAINING] = LocalTraining()
    try:
        with having(CLOSURE_KIND, "trains copies"):
            yield training
    finally:
        del memory[_TRAINING]


def current_training() -> LocalTraining | None:
    """Return what notes the changes of the present closure; None if it has no copies to train."""
    return closure_memory().get(_TRAINING)


@final
class Copies:
    """What a cell holds.

    Attributes:
        common: The value that all have in common.
        own: Those that workers have made of it, by their indices; their processes hold them, if they have some.
    """

    def __init__(self, common: jax.Array, own: Mapping[int, jax.Array | HeldArray]) -> None:
        """Hold values, which do not change."""
        self.common, self.own = common, own


@final
class WorkerCopies(Storage):
    """Keeps a common value in one place, and what each worker has made of it on that worker's device, or in its process.

    What is assigned outside of closures is what all have from then on.

    Attributes:
        slots: Where what optimizers keep of the cells is kept; None if here.
        servers: Runs programs in the workers' processes; None if these are threads.
    """

    holds_arrays = False
    is_of_workers = True

    def __init__(
        self,
        home: Device,
        place_name: str | None = None,
        slots: "WorkerCopies | None" = None,
        servers: Servers | None = None,
    ) -> None:
        """Keep common values on the device `home`."""
        self.place_name, self.slots, self.servers, self._home = place_name, slots, servers, home
        self._cells: list[weakref.ref[Cell]] = []
        self._optimized: weakref.WeakValueDictionary[int, Cell] = weakref.WeakValueDictionary()

    @property
    def cells(self) -> list[Cell]:
        """The cells that are kept here."""
        return [cell for ref in self._cells if (cell := ref()) is not None and cell.storage is self]

    def adopt(self, cell: Cell, array: jax.Array) -> None:
        """Let a new cell hold an array."""
        super().adopt(cell, array)
        self._cells = [ref for ref in self._cells if ref() is not None]
        self._cells.append(weakref.ref(cell))

    def keep_like(self, cell: Cell, other: Cell) -> None:
        """Let each worker have its own of what an optimizer keeps, too."""
        kept = self.slots or self
        if cell.stored is not None and cell.storage is not kept:
            with CELLS, deferring_signals():
                value = cell.storage.load(cell.stored)
                cell.storage = kept
                kept.adopt(cell, value)

    def load(self, held: Any) -> jax.Array:
        """Return the value of the worker that runs this, or the common one, where this thread computes."""
        return bring(fetch(self.load_for_plan(held)), default_device())

    def load_for_plan(self, held: Any) -> Any:
        """Return the same, but where it is."""
        worker = current_worker()
        if not isinstance(held, Copies):  # A program has taken what the cell held before it came to be kept here.
            return held
        return held.common if worker is None else held.own.get(worker.index, held.common)

    def example(self, held: Copies) -> jax.Array:
        """Return the common value."""
        return held.common

    def store(self, array: Any, held: Copies | None) -> Any:
        """Let the worker that runs this have a value, or all."""
        if isinstance(array, Tracer):
            return array
        worker, training = current_worker(), current_training()
        if worker is None or held is None:
            return Copies(bring(array, self._home), {})
        if training is not None:
            training.has_changed = True
        return Copies(held.common, {**held.own, worker.index: array})

    def allow(self, cells: Iterable[Cell]) -> None:
        """Note that an optimizer changes cells, so that closures may do so, too, from now on."""
        self._optimized.update((id(cell), cell) for cell in cells)

    def must_be_changeable(self, cell: Cell) -> None:
        """Refuse that something else than an optimizer changes a weight in a closure, if none has changed it before in any.

        Raises:
            NotImplementedError: If it does.
        """
        if current_training() is None or self.slots is None or id(cell) in self._optimized:
            return
        raise NotImplementedError(
            f"A function changes {cell_name(cell)!r}, which is trainable, and no optimizer's gradients do so before. Each worker has "
            "its own copy of it, and their mean stays: changes such as sums would not add up. Make the variable with "
            "trainable=False, or use `optimizer.apply_gradients`."
        )

    def value_of(self, held: Copies, worker: int | None) -> jax.Array:
        """Return the value of a worker, or the common one, where common ones are.

        Raises:
            DataLostError: If the worker's process has gone.
        """
        return bring(fetch(held.common if worker is None else held.own.get(worker, held.common)), self._home)

    def snapshot(self) -> list[tuple[Cell, Copies]]:
        """Return what the cells hold of which workers have their own, as of one moment."""
        with CELLS, deferring_signals():
            return [(cell, cell.stored) for cell in self.cells if cell.stored.own]

    def fetch(self, snapshot: Sequence[tuple[Cell, Copies]], workers: Iterable[int]) -> dict[int, list[jax.Array]]:
        """Return what some workers have of cells; nothing of those whose processes have gone."""
        found: dict[int, list[jax.Array]] = {}
        for worker in workers:
            try:
                found[worker] = [self.value_of(copies, worker) for _, copies in snapshot]
            except (DataLostError, WorkerLostError):  # Who runs its closures finds that out, too.
                continue
        return found

    def replace(
        self, snapshot: Sequence[tuple[Cell, Copies]], values: Iterable[jax.Array], *, keep_own: bool = False
    ) -> None:
        """Give cells other common values, but those that have been assigned since `snapshot`.

        Args:
            snapshot: The cells, and what they have held.
            values: The new common values.
            keep_own: Whether workers keep what they have, or go on from the new values.
        """
        new = [bring(value, self._home) for value in values]
        with CELLS, deferring_signals():
            for (cell, before), value in zip(snapshot, new, strict=True):
                now = cell.stored
                if now.common is before.common:
                    cell.stored = Copies(value, now.own if keep_own else {})

    def share_mean(self, workers: Iterable[int]) -> None:
        """Let the common values be the mean of some workers', as far as these are there; all keep what they have."""
        snapshot = self.snapshot()
        found = self.fetch(snapshot, workers)
        if found:
            self.replace(snapshot, map(mean_of, zip(*found.values(), strict=True)), keep_own=True)

    def forget(self, worker: int, others: Iterable[int]) -> None:
        """Let a worker go on from the common values, and from the mean of what optimizers of some others keep."""
        for storage in (self, self.slots or self):
            with CELLS, deferring_signals():
                for cell in storage.cells:
                    held = cell.stored
                    if worker in held.own:
                        cell.stored = Copies(held.common, {i: own for i, own in held.own.items() if i != worker})
        if self.slots is not None:
            self.slots.share_mean(others)

    def assign(self, values: Iterable[tuple[Cell, Any, Mapping[int, Any]]]) -> None:
        """Let cells have other common values, and some workers their own."""
        with CELLS, deferring_signals():
            for cell, common, own in values:
                cell.stored = Copies(bring(common, self._home), own)


def mean_of(arrays: Sequence[jax.Array]) -> jax.Array:
    """Return the mean of arrays, of short types in float32; of whole numbers the largest."""
    if not jnp.issubdtype(arrays[0].dtype, jnp.inexact):
        return jnp.max(jnp.stack(arrays), axis=0)
    wide = jnp.promote_types(arrays[0].dtype, jnp.float32)
    return jnp.mean(jnp.stack(arrays).astype(wide), axis=0).astype(arrays[0].dtype)
