"""Cells on servers, which several programs change at once: each sends updates, which are applied to what the servers hold by then."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol, final

import jax
import jax.numpy as jnp
from jax.core import Tracer

from tfdist_jax._errors import ChangeInBodyError
from tfdist_jax._internals import default_device
from tfdist_jax._sharding._mesh import Device
from tfdist_jax._stateful._capture import CaptureScope, capture
from tfdist_jax._stateful._handed_over import current_outbox
from tfdist_jax._stateful._state import Cell, Merge, StateScope, cell_name, changing, current_scope, read, write
from tfdist_jax._stateful._storage import Storage


class Traffic(Protocol):
    """Counts what travels between workers and servers."""

    def pull(self, size: int) -> Any:
        """Note that a program has read values of `size` bytes; what is returned stands for this moment."""

    def push(self, size: int, moment: Any) -> Any:
        """Note that a program that read its values at a `moment` has sent `size` bytes for an update, and return its next moment."""

    def note(self, pulled_bytes: int, pushed_bytes: int, staleness: Sequence[int]) -> None:
        """Note a whole run of a program: what it has read and sent, and how many updates of others each of its own had not seen."""


class ServedStorage(Storage):
    """Keeps arrays on a server, to which workers' programs send updates; the base of storages in this process and in others.

    Programs read a value once, when they start. What they compute in `update` is applied to the value that the server has when it comes.

    Attributes:
        traffic: Counts what travels.
    """

    holds_arrays = False
    is_served = True

    def __init__(self, traffic: Traffic, place_name: str | None = None) -> None:
        """Keep arrays at a place of that name."""
        self.traffic, self.place_name = traffic, place_name

    def taking_turn(self) -> contextlib.AbstractContextManager[None]:
        """Keep workers from changing what servers hold, if they do so without this process, while it does."""
        return contextlib.nullcontext()

    def keep_like(self, cell: Cell, other: Cell) -> None:
        """Keep a cell that is on a server, too, where the other one is: an update of both sends no server what the other one holds."""
        if cell.stored is not None and cell.storage.is_served and cell.storage is not self:
            value = cell.storage.load(cell.stored)
            cell.storage = self
            self.adopt(cell, value)

    def must_be_readable(self, cell: Cell) -> None:
        """Refuse what a closure has handed over to others."""
        outbox = current_outbox()
        if outbox is not None:
            outbox.must_be_open(cell)

    def must_be_changeable(self, cell: Cell) -> None:
        """Refuse that a closure of a round, which runs as Python, changes weights: whether by gradients is not known."""
        outbox = current_outbox()
        if outbox is None or outbox.is_ending or not cell.trainable:
            return
        if jnp.issubdtype(self.example(cell.stored).dtype, jnp.inexact):
            raise NotImplementedError(
                f"A function that runs as Python changes {cell_name(cell)!r}, which is trainable, in a round of workers. There a gradient "
                "counts by the round's mean, or is dropped, and whether this is one is not known. Use `optimizer.apply_gradients`, or make "
                "the variable with trainable=False: each function's change counts."
            )

    def write(self, scope: StateScope, cell: Cell, array: jax.Array, merge: Merge) -> None:
        """Write in a program; where the changes of several replicas would be added up, so are those of several workers.

        Raises:
            ChangeInBodyError: In a conditional or a loop: these run as a whole, with what they have read before.
        """
        if scope.is_update or not scope.is_traced:
            scope.write(cell, array, merge)
        elif merge is Merge.SUM_OF_DELTAS:
            change = array - scope.read(cell)
            update(lambda: write(cell, read(cell) + change), [cell])
        elif isinstance(scope, CaptureScope):
            scope.write(cell, array, merge)
        else:
            raise ChangeInBodyError(_IN_BODY)


@final
class EmbeddedServedStorage(ServedStorage):
    """Keeps arrays on a device of this process, often the host.

    Attributes:
        server: The device.
    """

    def __init__(self, device: Device, traffic: Traffic, place_name: str | None = None) -> None:
        """Keep arrays on `device`."""
        super().__init__(traffic, place_name)
        self.server = device

    def load(self, held: jax.Array) -> jax.Array:
        """Return a value on the present worker's device."""
        return bring(held, default_device())

    def example(self, held: jax.Array) -> jax.Array:
        """Return the value where it is."""
        return held

    def store(self, array: jax.Array, held: jax.Array | None) -> jax.Array:
        """Bring a value to the server."""
        return array if isinstance(array, Tracer) else bring(array, self.server)


def update(fn: Callable[[], Any], cells: Sequence[Any]) -> Any:
    """Run what reads cells and changes them, as one change: of served ones with the values that they have by then.

    Args:
        fn: Reads and writes cells, and uses what has been computed before. What it returns is computed there, too.
        cells: Some of them; where none is served, `fn` is called as it is.

    Returns:
        What `fn` returns.
    """
    scope = current_scope()
    served = {cell.storage for cell in cells if cell.storage.is_served}
    if scope is None or not scope.is_traced:
        with contextlib.ExitStack() as stack:
            for storage in served:
                stack.enter_context(storage.taking_turn())
            stack.enter_context(changing())  # Last: who holds the cells waits for no server.
            return fn()
    if scope.is_update or not served:
        with changing():
            return fn()
    if not isinstance(scope, CaptureScope):
        raise ChangeInBodyError(_IN_BODY)
    return scope.add_update(capture(fn, (), around=scope))


_IN_BODY = "It changes variables on servers in a conditional or a loop."


def bring(array: Any, device: Device | None) -> Any:
    """Return an array on a device, where there is one given; host values stay what they are."""
    if device is None or isinstance(array, Tracer) or not isinstance(array, jax.Array) or array.devices() == {device}:
        return array
    return jax.device_put(array, device)
