"""Several changes of cells outside of programs that come about together, or not at all."""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp

from tfdist_jax._signals import deferring_signals
from tfdist_jax._stateful._state import (
    CELLS,
    Cell,
    Merge,
    StateScope,
    current_scope,
    entering,
    load,
    must_have_value,
    read_now,
    store_all,
)


@final
class _Transaction(StateScope):
    """Keeps what is written until the end."""

    def __init__(self) -> None:
        self._changes: dict[int, tuple[Cell, jax.Array]] = {}

    @property
    def is_traced(self) -> bool:
        return False

    def read(self, cell: Cell) -> jax.Array:
        return self._changes[id(cell)][1] if id(cell) in self._changes else read_now(cell)

    def write(self, cell: Cell, array: jax.Array, merge: Merge) -> None:
        must_have_value(array)
        self._changes[id(cell)] = cell, array

    def changes(self) -> list[tuple[Cell, jax.Array]]:
        # Cells own their arrays, which steps may be given.
        return [(cell, jnp.copy(array)) for cell, array in self._changes.values()]


@contextlib.contextmanager
def changing_together() -> Iterator[None]:
    """Give cells the values written inside when the block ends, unless it ends with an exception.

    Other threads and handlers of signals wait meanwhile: for code that takes milliseconds.

    In a program, whose writes come about together anyway, it does nothing.
    """
    if current_scope() is not None:
        yield
        return
    transaction = _Transaction()
    with CELLS, deferring_signals():
        with entering(transaction):
            yield
        store_all(transaction.changes())


_RUNS = threading.RLock()


@final
class ReplicaTransaction(StateScope):
    """What replicas read from cells outside of programs, each in a thread of its own, and change together in the end.

    The cells cannot be kept from other threads meanwhile: these replicas are some. One such transaction waits for another.
    """

    def __init__(self) -> None:
        """Begin with no cell read; to be used as a context."""
        self._found: dict[int, tuple[Cell, Any]] = {}

    def __enter__(self) -> "ReplicaTransaction":
        _RUNS.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        _RUNS.release()

    @property
    def is_traced(self) -> bool:
        """False."""
        return False

    def read(self, cell: Cell) -> jax.Array:
        """Return the array of a cell."""
        with CELLS:
            self._found.setdefault(id(cell), (cell, cell.stored))
            return load(cell)

    def write(self, cell: Cell, array: jax.Array, merge: Merge) -> None:
        """Refuse: replicas write to scopes of their own."""
        raise RuntimeError("What replicas have written is stored together in the end.")

    def store(self, changes: Sequence[tuple[Cell, jax.Array]]) -> None:
        """Give cells their new values.

        Raises:
            RuntimeError: If another thread has changed one of them since it was read, whose change would be lost.
        """
        with CELLS:
            for cell, _ in changes:
                if id(cell) in self._found and cell.stored is not self._found[id(cell)][1]:
                    raise RuntimeError(
                        f"Another thread has changed {getattr(cell, 'name', 'a variable')} while a step that runs uncompiled was going "
                        "to: one of the changes would be lost. Decorate the step with tf.function, or use a lock in both threads."
                    )
            store_all(changes)
