"""Cells on servers in other processes."""

import itertools
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, final

import jax
import numpy as np
from jax.core import Tracer

from tfdist_jax._internals import default_device
from tfdist_jax._servers import BeforeChanges, Outcome, Part, Plan
from tfdist_jax._stateful._served_storage import ServedStorage, Traffic
from tfdist_jax._stateful._state import Cell


class Servers(Protocol):
    """Reaches servers, and runs plans with them."""

    def set(self, server: int, arrays: Mapping[int, np.ndarray]) -> None:
        """Let a server hold arrays."""
        ...

    def get(self, server: int, cells: Sequence[int]) -> list[np.ndarray]:
        """Return arrays that a server holds."""
        ...

    def drop(self, server: int, cells: Sequence[int]) -> None:
        """Let a server hold arrays no longer. It may be called at any time, in any thread."""
        ...

    def taking_turn(self) -> AbstractContextManager[None]:
        """Keep others from changing what servers hold, in whose place this thread changes it. It may be entered again within."""
        ...

    def record(self, plan: Plan) -> dict[str, Any]:
        """Return what the runs of a closure have noted when they came to run this plan; to be called once before each run of a plan."""
        ...

    def run(
        self, plan: Plan, parts: Mapping[str, Part], arguments: Sequence[Any], kept: Sequence[Sequence[int]] = ()
    ) -> Outcome:
        """Run a plan on the worker that this thread stands for, or here where it stands for none.

        Groups of its results, which `kept` names, stay with the worker, as `HeldArray`s.
        """
        ...

    def run_here(
        self, plan: Plan, parts: Mapping[str, Part], arguments: Sequence[Any], before_changes: BeforeChanges
    ) -> Outcome:
        """Run a plan, all of which a server does not do itself, in this process; the arguments are those of `Runner.run`."""
        ...


_numbers = itertools.count()


@final
class RemoteArray:
    """An array on a server.

    Attributes:
        owner: Keeps it on the server as long as anybody refers to it.
        number: By which the server knows it.
        shape: Its shape.
        dtype: Its type.
        weak_type: As of `jax.Array`.
    """

    def __init__(self, owner: "_Owner", array: Any) -> None:
        """Stand for an array like this one, of a cell that has a number."""
        self.owner, self.number = owner, owner.number
        self.shape, self.dtype, self.weak_type = array.shape, array.dtype, bool(getattr(array, "weak_type", False))


class _Owner:
    """A number at a server, which it forgets when nobody does any longer."""

    def __init__(self, servers: Servers, server: int) -> None:
        self.number = next(_numbers)
        weakref.finalize(self, servers.drop, server, [self.number]).atexit = False


@final
class RemoteStorage(ServedStorage):
    """Keeps arrays in a server's process.

    Attributes:
        servers: Reaches the servers.
        index: Which of them it is.
    """

    def __init__(self, servers: Servers, index: int, traffic: Traffic, place_name: str | None = None) -> None:
        """Keep arrays on one of the servers."""
        super().__init__(traffic, place_name)
        self.servers, self.index = servers, index

    def taking_turn(self) -> AbstractContextManager[None]:
        """Keep workers from changing what the servers hold."""
        return self.servers.taking_turn()

    def load(self, held: RemoteArray) -> jax.Array:
        """Fetch a value."""
        (value,) = self.servers.get(self.index, [held.number])
        return as_array(value)

    def example(self, held: RemoteArray) -> RemoteArray:
        """Return what has the value's shape and type."""
        return held

    def store(self, array: Any, held: RemoteArray | None) -> Any:
        """Send a value to the server."""
        if isinstance(array, Tracer):
            return array
        new = RemoteArray(_Owner(self.servers, self.index) if held is None else held.owner, array)
        self.servers.set(self.index, {new.number: np.asarray(array)})
        return new


def as_array(value: Any) -> jax.Array:
    """Return what has come from another process as an array, on the device where this one computes."""
    with jax.enable_x64(True):  # Types of 64 bits stay what they are.
        return jax.device_put(value, default_device())


def renew(cell: Cell) -> None:
    """Let a cell, whose value its server has changed, hold something new, by which others see that it has."""
    cell.stored = RemoteArray(cell.stored.owner, cell.stored)
