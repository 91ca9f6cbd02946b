"""What a checkpoint would save between two steps, noted at a cost that no step feels."""

from typing import Any, final

from tfdist_jax._moment import Moment
from tfdist_jax._state import Cell
from tfdist_jax.compat.tensorflow._tracking import changes_so_far
from tfdist_jax.compat.tensorflow.data._iterator import Resumable
from tfdist_jax.compat.tensorflow.train._objects import graph_of, slot_of


@final
class Moments:
    """Takes moments of an object and all that hangs on it, which is looked for again only if some of it may have changed."""

    def __init__(self, root: Any) -> None:
        """Take moments of `root`."""
        self._root = root
        self._changes = -1
        self._cells: list[Cell] = []
        self._iterators: list[Resumable] = []

    def now(self) -> Moment:
        """Return what is held now."""
        changes = changes_so_far()
        if changes != self._changes:
            owners = [node.owner for node in graph_of(self._root)]
            slots = filter(None, map(slot_of, owners))
            self._cells = [slot.cell for slot in slots if slot.cell is not None and slot.cell.stored is not None]
            self._iterators = [owner for owner in owners if isinstance(owner, Resumable)]
            self._changes = changes
        return Moment(self._cells, [(iterator, iterator.state()) for iterator in self._iterators])
