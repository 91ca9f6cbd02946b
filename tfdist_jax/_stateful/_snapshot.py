"""What cells held at a moment, found later by another thread, without having been kept alive.

What a step has given away since is gone, and not half new: then nothing of the moment can be told any more.
"""

import weakref
from collections.abc import Callable, Iterable
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax._internals import is_computed
from tfdist_jax._sharding._placement import local
from tfdist_jax._stateful._state import CELLS, Cell, Merge, StateScope, current_scope, load


def host_copy(array: Any) -> np.ndarray | None:
    """Return a copy of an array; None if it is gone, not computed yet, or has parts in other processes only."""
    if not isinstance(array, jax.Array):
        return None if array is None else np.array(array)
    try:
        is_here = array.is_fully_addressable or array.is_fully_replicated
        return np.array(local(array)) if is_here and is_computed(array) else None
    except RuntimeError:  # A step has just been given its memory.
        return None


@final
class Snapshot:
    """Now, when it is made."""

    def __init__(self, cells: Iterable[Cell], others: Iterable[tuple[Any, Any]] = ()) -> None:
        """Note what cells hold.

        Args:
            cells: The cells.
            others: Objects that are not cells, and what they hold.
        """
        self._held = [(cell, weakref.ref(cell.stored)) for cell in cells]
        self._others = list(others)

    def values(self) -> list[tuple[Cell, np.ndarray]] | None:
        """Return the cells with copies of what they held; None if there is one whose array is gone, or is not computed yet."""
        with CELLS:  # What is referred to from here on is not given away.
            noted = [(cell, ref()) for cell, ref in self._held]
        found = []
        for cell, held in noted:
            value = None if held is None else host_copy(cell.storage.load(held))
            if value is None:
                return None
            found.append((cell, value))
        return found

    def scope(self) -> "SnapshotScope | None":
        """Return what lets a thread find what was held; None where `values` is."""
        values = self.values()
        return (
            None
            if values is None
            else SnapshotScope(self, {id(owner): held for owner, held in [*self._others, *values]})
        )


@final
class SnapshotScope(StateScope):
    """Lets a thread find what cells held at a moment; what it writes it alone finds again."""

    def __init__(self, snapshot: Snapshot, values: dict[int, Any]) -> None:
        # The numbers of objects are theirs only as long as they live.
        self._snapshot = snapshot
        self._values = values

    @property
    def is_traced(self) -> bool:
        return False

    def read(self, cell: Cell) -> jax.Array:
        value = self._values[id(cell)] if id(cell) in self._values else load(cell)
        with jax.enable_x64(True):  # As they were.
            return jnp.asarray(local(value))

    def write(self, cell: Cell, array: jax.Array, merge: Merge) -> None:
        self._values[id(cell)] = array

    def of(self, owner: Any, now: Callable[[], Any]) -> Any:
        """Return what an object held that is not a cell, or holds now."""
        return self._values[id(owner)] if id(owner) in self._values else now()


def read_snapshot(owner: Any, now: Callable[[], Any]) -> Any:
    """Return what an object held at the moment that this thread looks at, if it does, or holds now."""
    scope = current_scope()
    return scope.of(owner, now) if isinstance(scope, SnapshotScope) else now()
