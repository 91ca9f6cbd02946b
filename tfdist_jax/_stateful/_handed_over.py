"""What closures hand over, such as gradients, so that it is put together with that of others before cells are changed by it.

In a program each array that is handed over is what a cell is assigned, whose storage puts it into the outbox of the closure that runs.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.core import Tracer

from tfdist_jax._coordinator import closure_memory
from tfdist_jax._errors import ChangeInBodyError
from tfdist_jax._stateful._capture import CaptureScope
from tfdist_jax._stateful._state import CLOSURE_KIND, Cell, Merge, StateScope, cell_name, current_scope, write
from tfdist_jax._stateful._storage import Storage
from tfdist_jax._thread_state import having

_OUTBOX = "what a closure hands over"


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Delivery:
    """A place in a closure where arrays are handed over.

    Attributes:
        receiver: Who gets them, such as an optimizer.
        targets: What they are for, such as its variables.
        tree: The structure of the arrays.
        apply: Changes cells, given what several closures have handed over to the receiver: `(targets, tree of arrays)` of each.
        cells: The cells that are changed then.
    """

    receiver: Any
    targets: tuple[Any, ...]
    tree: Any
    apply: Callable[[list[tuple[tuple[Any, ...], Any]]], object]
    cells: tuple[Cell, ...]

    @property
    def kind(self) -> Any:
        """What deliveries have in common that are alike; as long as the receiver and the targets are there."""
        return id(self.receiver), tuple(map(id, self.targets)), self.tree


@final
class Outbox:
    """What one run of a closure hands over.

    Attributes:
        arrays: The arrays of each place where it has.
        is_ending: Whether the closure runs as Python up to where it has no more input, and may do what its program does.
    """

    def __init__(self) -> None:
        """Be empty."""
        self.arrays: dict[Delivery, list[Any]] = {}
        self.is_ending = False
        # Cells that are to be changed by it, and the program being traced that says so; None if it has run.
        self._closed: dict[int, tuple[Cell, CaptureScope | None]] = {}

    def put(self, delivery: Delivery, place: int, array: jax.Array) -> None:
        """Take one of the arrays of a place."""
        arrays = self.arrays.setdefault(delivery, [None] * delivery.tree.num_leaves)
        arrays[place] = array
        self.close(delivery.cells, None)

    def close(self, cells: Iterable[Cell], scope: CaptureScope | None) -> None:
        """Let cells be used no more by the closure; while it is traced by that program alone."""
        self._closed.update((id(cell), (cell, scope)) for cell in cells)

    def must_be_open(self, cell: Cell) -> None:
        """Refuse that the closure uses a cell.

        Raises:
            NotImplementedError: If it has handed over what the cell is to be changed by.
        """
        _, scope = self._closed.get(id(cell), (None, None))
        if id(cell) in self._closed and (scope is None or not scope.is_over):
            raise NotImplementedError(
                f"A function uses {cell_name(cell)!r} after it has given gradients for it to the round that all workers train in: that is "
                "changed when the round ends, after the function. Apply gradients in the end of a function, once for each variable, and do "
                "what comes then in another function that is scheduled (in `fit`, with steps_per_execution=1)."
            )


@contextlib.contextmanager
def collecting() -> Iterator[Outbox]:
    """Collect what the closure that this thread runs hands over, instead of letting it change cells at once."""
    memory = closure_memory()
    outbox = memory[_OUTBOX] = Outbox()
    try:
        with having(CLOSURE_KIND, "gives gradients"):
            yield outbox
    finally:
        del memory[_OUTBOX]


def current_outbox() -> Outbox | None:
    """Return where what this code hands over is collected; None if it is to change cells at once."""
    return closure_memory().get(_OUTBOX)


@contextlib.contextmanager
def running_to_the_end() -> Iterator[None]:
    """Let a function that fails for want of input do up to there, as Python, what its program does."""
    outbox = current_outbox() or Outbox()
    before, outbox.is_ending = outbox.is_ending, True
    try:
        yield
    finally:
        outbox.is_ending = before


def is_collecting() -> bool:
    """Whether there is an outbox: programs that are traced then are others."""
    return current_outbox() is not None


def hand_over(
    receiver: Any,
    targets: Sequence[Any],
    values: Any,
    apply: Callable[[list[tuple[tuple[Any, ...], Any]]], object],
    cells: Iterable[Cell],
) -> None:
    """Hand over arrays where `current_outbox` is; the arguments are those of `Delivery`, `values` the tree of arrays.

    Raises:
        NotImplementedError: If the closure has handed something over for one of the cells before.
        ChangeInBodyError: In a conditional or a loop.
    """
    outbox: Any = current_outbox()
    changed = tuple(cells)
    for cell in changed:
        outbox.must_be_open(cell)
    leaves, tree = jax.tree.flatten(values)
    delivery = Delivery(receiver, tuple(targets), tree, apply, changed)
    for place, leaf in enumerate(leaves):
        write(_Slot(delivery, place), leaf)
    scope: Any = current_scope()
    if scope is not None:
        outbox.close(changed, scope)


def is_handed_over(cell: Cell) -> bool:
    """Whether what a program assigns to a cell is handed over."""
    return isinstance(cell, _Slot)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class _Held:
    delivery: Delivery
    place: int


@final
class _OutboxStorage(Storage):
    """Puts what cells are assigned into the outbox of the closure that runs; to be read, there is a number."""

    holds_arrays = False

    def load(self, held: _Held) -> jax.Array:
        return jnp.int32(0)

    def store(self, array: jax.Array, held: Any) -> _Held:
        outbox = current_outbox()
        if outbox is None:
            raise RuntimeError(
                "A program that gives gradients to a round of workers runs where there is none: outside of a function that `schedule` "
                "has got."
            )
        if not isinstance(array, Tracer):
            outbox.put(held.delivery, held.place, array)
        return held

    def write(self, scope: StateScope, cell: Cell, array: jax.Array, merge: Merge) -> None:
        if not isinstance(scope, CaptureScope):
            raise ChangeInBodyError("It applies gradients in a conditional or a loop.")
        scope.write(cell, array, merge)


_STORAGE = _OutboxStorage()


@final
class _Slot:
    """A cell for one array that is handed over."""

    path = "what is handed over"
    trainable = False

    def __init__(self, delivery: Delivery, place: int) -> None:
        self.stored: Any = _Held(delivery, place)
        self.storage: Storage = _STORAGE
