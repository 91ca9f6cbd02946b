"""Mutable cells, and the scopes that turn their reads and writes into inputs and outputs of programs."""

import abc
import contextlib
import enum
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
from jax.core import Tracer

from tfdist_jax import _forks
from tfdist_jax._autodiff._tape import observe_read
from tfdist_jax._autodiff._tape_trace import unseen_by_tapes
from tfdist_jax._internals import eval_trace, known_value, set_current_trace
from tfdist_jax._sharding._placement import local
from tfdist_jax._signals import deferring_signals
from tfdist_jax._thread_state import having

if TYPE_CHECKING:
    from tfdist_jax._stateful._storage import Storage


CELLS = threading.RLock()
"""Held while cells are read or changed. A step holds it from reading its cells until its results are in them: an array that another
thread took in between might be given away. Where it is held, no other thread is waited for."""
if hasattr(os, "register_at_fork"):  # Another thread may hold it, which the child has not.
    os.register_at_fork(after_in_child=CELLS._at_fork_reinit)  # noqa: SLF001 # pyright: ignore[reportAttributeAccessIssue]


class Cell(Protocol):
    """Something that holds one array and may be given another, such as a variable.

    Attributes:
        stored: What it holds between programs: the array, unless its storage keeps that somewhere else.
        storage: How the array is kept.
        trainable: Whether tapes watch it on their own.
    """

    stored: Any
    storage: "Storage"

    @property
    def trainable(self) -> bool: ...


def cell_name(cell: Cell) -> str:
    """Return what a cell is called by who made it: a path, or a name without TensorFlow's number of the output."""
    return getattr(cell, "path", None) or str(getattr(cell, "name", "")).partition(":")[0]


class Merge(enum.Enum):
    """What becomes of the values that the replicas of one program have written to a shared cell."""

    SAME = 0
    """They are equal already."""
    FIRST = 1
    """The first replica's value is kept, of those that count where some do not."""
    MEAN = 2
    """Their mean is kept, in which a replica counts as often as it has rows of the batch."""
    SUM_OF_DELTAS = 3
    """The changes that all replicas made are added up."""
    LAST = 4
    """The last replica's value is kept, likewise."""


class StateScope(abc.ABC):
    """Stands between cells and the code of one program."""

    @property
    def is_traced(self) -> bool:
        """Whether the program is being traced, so that what it computes has no values."""
        return True

    @property
    def is_update(self) -> bool:
        """Whether the code is run with the values that cells have when its program comes to it."""
        return False

    def after_run(self, check: Callable[[], None]) -> bool:
        """Let `check` be called each time when the program has run; False if nobody will."""
        return False

    def present_value(self, array: jax.Array) -> Any:
        """Return what a traced array would be if the program ran now, or None if that cannot be known."""
        return known_value(array)

    @abc.abstractmethod
    def read(self, cell: Cell) -> jax.Array:
        """Return the value of `cell` at this point of the program."""

    def values(self, cell: Cell) -> list[jax.Array]:
        """Return the values that `cell` has had in the program up to this point, as far as they are known here."""
        return [self.read(cell)]

    @abc.abstractmethod
    def write(self, cell: Cell, array: jax.Array, merge: Merge) -> None:
        """Give `cell` a new value from this point of the program on."""


# Which scope this thread's code runs in: as for JAX's own trace context, no argument could carry it through user code.
_scope: ContextVar[StateScope | None] = ContextVar("scope", default=None)


# How the closure that this thread runs trains, if in rounds: programs that are traced then are others.
CLOSURE_KIND: ContextVar[str | None] = ContextVar("closure kind", default=None)


def current_scope() -> StateScope | None:
    """Return the scope of the program being traced, or None outside of one."""
    return _scope.get()


def present_value(array: jax.Array) -> Any:
    """Return the value of an array; of a traced one what it would be if the program ran now, or None if that cannot be known."""
    scope = _scope.get()
    return known_value(array) if scope is None else scope.present_value(array)


def entering(scope: StateScope | None) -> AbstractContextManager[None]:
    """Make `scope` the one that reads and writes go to."""
    return having(_scope, scope)


@contextlib.contextmanager
def leaving_programs() -> Iterator[None]:
    """Compute at once, on what cells hold: no program that is traced sees what happens inside, nor does a tape."""
    with entering(None), unseen_by_tapes(), set_current_trace(eval_trace):
        yield


def load(cell: Cell) -> jax.Array:
    """Return the array of `cell` as programs take it; `[num_replicas, ...]` if each replica has a value of its own."""
    with CELLS:
        return cell.storage.load(cell.stored)


def store(cell: Cell, array: jax.Array) -> None:
    """Let `cell` hold another array, laid out like the one before."""
    with CELLS:
        cell.stored = cell.storage.store(array, cell.stored)


def store_all(changes: Iterable[tuple[Cell, jax.Array]]) -> None:
    """Let cells hold other arrays: all of them, even if a signal comes meanwhile."""
    with CELLS, deferring_signals():
        for cell, array in changes:
            store(cell, array)


def read_now(cell: Cell) -> Any:
    """Return the value outside of programs: where several processes hold it, a copy of this one's, which no step gives away."""
    array = load(cell)
    if _forks.is_child:
        _forks.must_have_come(array)
    own = array if cell.storage.per_replica else local(array)
    return own if own is array else jnp.copy(own)


def read(cell: Cell) -> jax.Array:
    """Return the value of `cell`, noticed by recording tapes."""
    scope = _scope.get()
    cell.storage.must_be_readable(cell)
    array = read_now(cell) if scope is None else cell.storage.read(scope, cell)
    return observe_read(cell, array, trainable=cell.trainable)


def changing() -> contextlib.AbstractContextManager[Any]:
    """Keep other threads from cells while one is read and written; not in a program being traced, which is one thread's own."""
    return CELLS if _scope.get() is None else contextlib.nullcontext()


def write(cell: Cell, array: jax.Array, *, merge: Merge = Merge.SAME) -> None:
    """Give `cell` a new value: now, or when the program being traced has run."""
    scope = _scope.get()
    if scope is not None:
        cell.storage.write(scope, cell, array, merge)
    else:
        must_have_value(array)
        cell.storage.must_be_changeable(cell)
        store(cell, array)


def must_have_value(array: jax.Array) -> None:
    """Refuse what code outside of programs cannot write to a cell.

    Raises:
        RuntimeError: If `array` is traced.
    """
    if isinstance(array, Tracer):
        raise RuntimeError(
            "A variable was assigned inside a JAX transformation, where its value does not exist yet. "
            "Assign it outside, or in a function that the strategy or tf.function compiles."
        )
