"""How cells keep their arrays between programs: each has a storage, which its strategy chooses."""

import functools
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, SingleDeviceSharding

from tfdist_jax._device_scope import Device, copy_to, only_device
from tfdist_jax._errors import NewOwnCellsError
from tfdist_jax._internals import is_computed
from tfdist_jax._sharding._layout import tree_shardings
from tfdist_jax._sharding._mesh import num_replicas
from tfdist_jax._sharding._placement import put, replicated_sharding, stack_replicas
from tfdist_jax._stateful._merging import merge_values
from tfdist_jax._stateful._state import Cell, Merge, StateScope, cell_name
from tfdist_jax._strategy import Strategy

# The most numbers of an array that the host copies, rather than a computation, and the types that JAX takes from it as they are.
_FEW = 1024
_HOST_TYPES = frozenset(map(np.dtype, ("float32", "int32", "uint32", "bool")))


class Storage:
    """Keeps arrays where they come to lie; the base of storages that keep them somewhere else.

    A storage whose cells hold something else than the arrays of programs answers `load` and `store`, and says so by
    `holds_arrays`. What it holds in a cell must not change, only be replaced, and must allow weak references.

    Attributes:
        per_replica: Whether each replica has a value of its own. Programs then take an array `[num_replicas, ...]`, sharded over
            the data axis.
        holds_arrays: Whether `Cell.stored` is the very array that programs take and return, which costs a step nothing.
        is_served: Whether several programs change a cell at once, each by what it sends to whoever keeps it.
        is_of_workers: Whether each worker's programs have a value of their own (`_worker_copies`).
        place_name: What the place is called where arrays are kept; None if by their devices' names.
        device: The one device that arrays stay on, wherever they are computed; None if they go with what computes them.
        updates_apart: Whether optimizers' updates run behind the replicas, where arrays that are split over devices stay so.
        is_given: Whether its cells stand for inputs that a program is found to need while it is traced: each run is given its own.
    """

    per_replica = False
    holds_arrays = True
    is_served = False
    is_of_workers = False
    place_name: str | None = None
    device: Device | None = None
    updates_apart = False
    is_given = False

    def place(self, cell: Cell, value: jax.Array) -> None:
        """Give a new cell its first value, the one of a replica; `value` stays the caller's."""
        self.adopt(cell, jnp.copy(value))

    def adopt(self, cell: Cell, array: jax.Array) -> None:
        """Let a new cell hold an array that is like those that `load` returns, and nobody else's."""
        cell.stored = self.store(array, None)

    def keep_like(self, cell: Cell, other: Cell) -> None:
        """Keep a cell that is made for one of this storage's, such as what an optimizer keeps of a variable, as that one is kept.

        Here it stays where it is.
        """

    def load(self, held: Any) -> jax.Array:
        """Return the array, on the devices of programs, of what a cell holds."""
        return held

    def load_for_plan(self, held: Any) -> Any:
        """Return the same for a program that a worker's process runs, which may have it already (`HeldArray`)."""
        return self.load(held)

    def example(self, held: Any) -> Any:
        """Return something of the shape and type of what `load` returns, for a trace."""
        return self.load(held)

    def store(self, array: jax.Array, held: Any) -> Any:
        """Return what a cell is to hold, given an array and what it has held: laid out like that.

        What is bound to no device stays free to meet any array; it follows a value that lies on all devices of a strategy.
        """
        if held is None or isinstance(array, Tracer) or array.sharding == held.sharding:
            return array
        if not (held.committed or array.committed) and array.devices() != held.devices():
            with jax.default_device(*held.devices()):
                return jnp.copy(array)
        if held.committed:
            return put(_copy(array), held.sharding)  # The transfer alone would share memory, which a step may reuse.
        return jnp.asarray(np.asarray(array)) if array.committed and len(array.devices()) == 1 else array

    def must_be_readable(self, cell: Cell) -> None:
        """Come before a cell is read, to refuse it."""

    def must_be_changeable(self, cell: Cell) -> None:
        """Come before a cell is changed outside of programs, to refuse it."""

    def read(self, scope: StateScope, cell: Cell) -> jax.Array:
        """Return a cell's value at the present point of the program that `scope` stands for."""
        return scope.read(cell)

    def write(self, scope: StateScope, cell: Cell, array: jax.Array, merge: Merge) -> None:
        """Give a cell a new value from the present point of a program on."""
        scope.write(cell, array, merge)

    def merge(self, values: Sequence[jax.Array], old: jax.Array, merge: Merge, counts: tuple[int, ...]) -> jax.Array:
        """Return what programs are to find after the replicas have written `values`; the arguments are those of `merge_values`."""
        return merge_values(values, old, merge, counts)

    def __deepcopy__(self, memo: Any) -> "Storage":
        """Return the storage itself: copies of cells belong to the same strategy."""
        return self

    def __reduce__(self) -> Any:
        """Become `PLAIN` in other processes, which have other devices."""
        return _plain, ()


def _plain() -> Storage:
    return PLAIN


def _copy(array: jax.Array) -> jax.Array | np.ndarray:
    """Return a copy to be laid out elsewhere: of a few numbers that the host has at hand, one of NumPy, which is sent at once."""
    if array.size <= _FEW and array.dtype in _HOST_TYPES and _is_on_host(array) and is_computed(array):
        return np.array(array)
    return jnp.copy(array)


def _is_on_host(array: jax.Array) -> bool:
    devices = array.devices()
    return len(devices) == 1 and next(iter(devices)).platform == "cpu"


class MirroredStorage(Storage):
    """Keeps a copy on each device of a mesh."""

    def __init__(self, mesh: Mesh) -> None:
        """Keep copies on the devices of `mesh`."""
        self.mesh = mesh

    def place(self, cell: Cell, value: jax.Array) -> None:
        """Copy the first value to all devices."""
        self.adopt(cell, put(jnp.copy(value), replicated_sharding(self.mesh)))


@final
class ShardedStorage(MirroredStorage):
    """Keeps arrays as a strategy lays them out over its mesh, such as a part on each device; replicas are given whole ones."""

    updates_apart = True

    def __init__(self, strategy: Strategy) -> None:
        """Lay arrays out as `strategy` does, by the names of their cells."""
        super().__init__(strategy.mesh)
        self._strategy = strategy
        self._names: set[str] | None = set()

    def place(self, cell: Cell, value: jax.Array) -> None:
        """Give each device its part of the first value."""
        name = cell_name(cell)
        if self._names is not None:
            self._names.add(name)
        sharding = tree_shardings(self._strategy.state_layout, {name: value}, self.mesh)[name]
        self.adopt(cell, put(jnp.copy(value), sharding))

    def keep_like(self, cell: Cell, other: Cell) -> None:
        """Lay a cell out like another one of its shape, also one that was made outside of the strategy's scope."""
        value = cell.stored
        if value is not None and not cell.storage.per_replica and value.shape == other.stored.shape:
            cell.storage = self
            self.adopt(cell, put(jnp.copy(value), other.stored.sharding))

    def warn_of_unmatched_rules(self) -> None:
        """Warn, once, of rules of the strategy that match the name of no cell so far."""
        names, self._names = self._names, None
        if names and (unmatched := self._strategy.unmatched_rules(names)):
            warnings.warn(
                f"The rules {unmatched} match the end of no variable's path, and paths are such as {sorted(names)[:8]}: what they are for "
                "is laid out without them.",
                stacklevel=2,
            )


@final
class CentralStorage(Storage):
    """Keeps one array, in the host's memory or on one device; programs take copies on all devices of a mesh, and give one back."""

    holds_arrays = False

    def __init__(self, mesh: Mesh, home: SingleDeviceSharding, place_name: str | None = None) -> None:
        """Keep arrays at `home`, whose memory kind says in which memory of the device; programs run on `mesh`."""
        self._whole, self._home, self.place_name = replicated_sharding(mesh), home, place_name
        (device,) = home.device_set
        self._is_among_copies = device in self._whole.device_set and home.memory_kind == device.default_memory().kind

    def load(self, held: jax.Array) -> jax.Array:
        """Copy an array to all devices: a program may reuse the memory of what it gets."""
        return put(jnp.copy(held) if self._is_among_copies else held, self._whole)

    def example(self, held: jax.Array) -> jax.Array:
        """Return the array where it is."""
        return held

    def store(self, array: jax.Array, held: jax.Array | None) -> jax.Array:
        """Bring an array home, from one of the devices that have it."""
        if isinstance(array, Tracer):
            return array
        copies = {shard.device: shard.data for shard in array.addressable_shards}
        (device,) = self._home.device_set
        return jax.device_put(copies.get(device, array.addressable_data(0)), self._home)


@final
class PerReplicaStorage(Storage):
    """Keeps a value for each replica, on its device."""

    per_replica = True

    def __init__(self, mesh: Mesh) -> None:
        """Keep values on the replicas of `mesh`."""
        self._mesh = mesh
        self._cells: list[weakref.ref[Cell]] = []

    def place(self, cell: Cell, value: jax.Array) -> None:
        """Let all replicas start with `value`."""
        self.adopt(cell, stack_replicas([value] * num_replicas(self._mesh), self._mesh))

    def adopt(self, cell: Cell, array: jax.Array) -> None:
        """Note the cell too: programs hand each replica its part of all of them."""
        super().adopt(cell, array)
        self._cells = [ref for ref in self._cells if ref() is not None]
        self._cells.append(weakref.ref(cell))

    def cells(self) -> list[Cell]:
        """Return the cells that there are."""
        return [cell for ref in self._cells if (cell := ref()) is not None]

    def with_cells(self, run: Callable[[list[Cell]], Any]) -> Any:
        """Call `run` with the cells that there are, again when its replicas make some on the way."""
        while True:
            try:
                return run(self.cells())
            except NewOwnCellsError:
                continue

    def merge(self, values: Sequence[jax.Array], old: jax.Array, merge: Merge, counts: tuple[int, ...]) -> jax.Array:
        """Return the values side by side."""
        return jnp.stack(values)


@final
class DeviceStorage(Storage):
    """Keeps arrays on one device."""

    def __init__(self, device: Device) -> None:
        """Keep them on `device`."""
        self.device: Device = device

    def place(self, cell: Cell, value: jax.Array) -> None:
        """Copy the first value to the device."""
        self.adopt(cell, copy_to(value, self.device))

    def store(self, array: jax.Array, held: Any) -> Any:
        """Return the array if it lies there, or a copy."""
        return array if isinstance(array, Tracer) or only_device(array) == self.device else copy_to(array, self.device)


PLAIN = Storage()
"""The storage of cells that belong to no strategy."""


@final
class _GivenStorage(Storage):
    is_given = True


GIVEN = _GivenStorage()
"""The storage of cells that stand for inputs of each run."""


@functools.cache
def storage_on(device: Device | None) -> Storage:
    """Return the storage that keeps arrays on one device; for None, `PLAIN`."""
    return PLAIN if device is None else DeviceStorage(device)
