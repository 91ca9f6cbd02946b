"""Updates that replicas leave to the program around them: there arrays are those of all devices, and what is split stays so.

Inside of replicas a variable is whole on each device, and so is what an optimizer keeps of it. An update that needs nothing but sums over
the replicas runs behind them just as well, where XLA divides it among the devices as its variables lie.
"""

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from tfdist_jax._autodiff._tape_trace import unseen_by_tapes
from tfdist_jax._errors import NotCompilableError, UsedAfterUpdateError
from tfdist_jax._global_batch._gathers import run_on_parts
from tfdist_jax._sharding._collectives import scatter_sum_over, sum_over
from tfdist_jax._sharding._layout import WHOLE, make_spec, names_of
from tfdist_jax._sharding._mesh import DATA
from tfdist_jax._stateful._state import Cell, Merge, StateScope, cell_name, entering


@final
@dataclasses.dataclass(frozen=True)
class Scattered:
    """An array of which each replica has a part.

    Attributes:
        part: This replica's.
        dimension: Along which the parts lie side by side, in the replicas' order.
    """

    part: jax.Array
    dimension: int


def spec_of(cell: Cell) -> PartitionSpec:
    """Return how the array of a cell lies whose updates run behind the replicas; whole on each device if they do not."""
    sharding = getattr(cell.stored, "sharding", None)
    return sharding.spec if cell.storage.updates_apart and isinstance(sharding, NamedSharding) else WHOLE


def sum_as_laid_out(value: jax.Array, spec: PartitionSpec) -> jax.Array | Scattered:
    """Add values of all replicas up, for an array that lies over the mesh as `spec` says."""
    dimension = next((d for d, entry in enumerate(spec) if DATA in names_of(entry)), None)
    if dimension is None:
        return sum_over(value, DATA)
    # XLA would put together what else is divided before it adds up; in a program over those axes it cannot.
    rest = make_spec([() if d == dimension else names_of(entry) for d, entry in enumerate(spec)])
    scatter = lambda value: scatter_sum_over(value, DATA, dimension)
    return Scattered(run_on_parts(scatter, value, rest), dimension)


@final
@dataclasses.dataclass(frozen=True)
class _Update:
    apply: Callable[[Any], object]
    operands: Sequence[Any]
    tree: Any


@final
class _UpdateScope(StateScope):
    """The program around the replicas, as an update sees it."""

    def __init__(self, around: StateScope, seen: Collection[int]) -> None:
        """Let `around` be read and written, but for the cells that are `seen`, given by identity."""
        self._around, self._seen = around, seen

    def after_run(self, check: Callable[[], None]) -> bool:
        return self._around.after_run(check)

    def present_value(self, array: jax.Array) -> Any:
        return self._around.present_value(array)

    def read(self, cell: Cell) -> jax.Array:
        return self._around.read(cell)

    def values(self, cell: Cell) -> list[jax.Array]:
        return self._around.values(cell)

    def write(self, cell: Cell, array: jax.Array, merge: Merge) -> None:
        if id(cell) in self._seen:
            raise NotCompilableError(
                f"An optimizer's update changes {cell_name(cell)!r}, which is none of its variables, and the step uses it afterwards."
            )
        self._around.write(cell, array, merge)


@final
class PostponedUpdates:
    """The updates that the replicas of one program leave to the program around them, in order.

    Attributes:
        are_taken: Whether there is a program that will run them.
        is_told: Whether the user knows if not.
    """

    def __init__(self, *, are_taken: bool, is_told: bool = False) -> None:
        """Start with none."""
        self.are_taken, self.is_told = are_taken, is_told
        self._updates: list[_Update] = []
        self._changed: set[int] = set()
        self._moments: dict[int, int] = {}
        self._seen: set[int] = set()

    def add(self, apply: Callable[[Any], object], operands: Any, cells: Sequence[Cell]) -> None:
        """Let `apply` be called behind the replicas.

        Args:
            apply: Takes what `operands` are there: arrays of all devices. Reads and writes cells.
            operands: A tree of arrays that are equal on all replicas, and of `Scattered` ones.
            cells: Those that `apply` changes, or reads.
        """
        leaves, tree = jax.tree.flatten(operands, is_leaf=_is_scattered)
        self._updates.append(_Update(apply, leaves, tree))
        self._changed.update(map(id, cells))

    def must_not_change(self, cell: Cell) -> None:
        """Refuse that a replica uses a cell.

        Raises:
            UsedAfterUpdateError: If an update is to change it.
        """
        if self._updates:
            self._seen.add(id(cell))
        if id(cell) in self._changed:
            raise UsedAfterUpdateError(f"it uses {cell_name(cell)!r} after the optimizer's update")

    def note_write(self, cell: Cell) -> None:
        """Note that a replica writes a cell after the updates that there are.

        Raises:
            UsedAfterUpdateError: If it has written the cell before one of them, too: it is not known which value the update needs.
        """
        self.must_not_change(cell)
        if self._moments.setdefault(id(cell), len(self._updates)) != len(self._updates):
            raise UsedAfterUpdateError(f"it writes {cell_name(cell)!r} before and after the optimizer's update")

    def moment_of(self, cell: Cell) -> int:
        """Return behind how many updates a replica has written a cell."""
        return self._moments.get(id(cell), 0)

    def operands(self) -> tuple[list[jax.Array], list[jax.Array]]:
        """Return what replicas are to return for the updates: parts, along the first dimension, and arrays that are equal on all."""
        leaves = [leaf for update in self._updates for leaf in update.operands]
        parts = [jnp.moveaxis(leaf.part, leaf.dimension, 0) for leaf in leaves if _is_scattered(leaf)]
        return parts, [jnp.asarray(leaf) for leaf in leaves if not _is_scattered(leaf)]

    def run(
        self,
        around: StateScope,
        split: Sequence[jax.Array],
        whole: Sequence[jax.Array],
        before: Callable[[int], object],
    ) -> None:
        """Apply the updates, in the program around the replicas.

        Args:
            around: The scope of that program.
            split: What has become of the parts that `operands` has returned.
            whole: What has become of the other arrays.
            before: Called with the number of updates that have been applied, before each one and in the end.

        Raises:
            NotCompilableError: If an update changes what replicas have used after it, and was not known to change.
        """
        parts, others = iter(split), iter(whole)
        for number, update in enumerate(self._updates):
            before(number)
            arrays = [
                jnp.moveaxis(next(parts), 0, leaf.dimension) if _is_scattered(leaf) else next(others)
                for leaf in update.operands
            ]
            with unseen_by_tapes(), entering(_UpdateScope(around, self._seen)):
                update.apply(jax.tree.unflatten(update.tree, arrays))
        before(len(self._updates))


def _is_scattered(leaf: Any) -> bool:
    return isinstance(leaf, Scattered)
