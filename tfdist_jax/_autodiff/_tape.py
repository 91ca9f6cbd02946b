"""A tape: records what happens to watched arrays, eagerly or while a program is traced, and differentiates it.

Arrays are told apart by object identity. Three rules make that safe:

1. A cell's read under a tape returns an array object of its own for each value the cell has had, made below the
   tapes. Otherwise cells that share an array, or a value computed from another cell, would be taken for one another.
2. Where a program inside an operation (the body of a jit or a scan) holds a connected array as a constant, it is run
   one operation at a time, or an error is raised.
3. Each tape computes on the one outside of it, and so down to JAX's own trace; the chain is rebuilt when a tape ends
   out of order.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp

from tfdist_jax._autodiff._pullbacks import RowGradient, dense, is_differentiable
from tfdist_jax._autodiff._tape_trace import (
    STARTED,
    Record,
    recording_below,
    start,
    started_traces,
    stop,
    traces_that_see,
)
from tfdist_jax._device_scope import copy_to, current_device, on_device, only_device
from tfdist_jax._internals import ArrayImpl, Trace, current_trace, set_current_trace

Cell = Any
"""An object that holds an array, such as a variable; see `tfdist_jax._stateful._state.Cell`."""


@final
class Tape:
    """Records operations on watched arrays and cells; gives gradients of what was computed from them.

    Example:
        >>> tape, x = Tape(), jnp.float32(3)
        >>> tape.start()
        >>> tape.watch(x)
        >>> y = x * x
        >>> tape.stop()
        >>> tape.gradient([y], [x])
        [Array(6., dtype=float32)]
    """

    def __init__(self, *, persistent: bool = False, watch_reads: bool = True) -> None:
        """Make a tape that does not record yet.

        Args:
            persistent: Keep the record after `gradient`, which may then be called any number of times.
            watch_reads: Watch every trainable cell that is read while the tape records.
        """
        self._persistent = persistent
        self._watch_reads = watch_reads
        self._recording = False
        self._used = False
        self.reset()

    @property
    def recording(self) -> bool:
        """Whether operations are being noted."""
        return self._recording

    def start(self) -> None:
        """Record from now on what this thread does, on top of the tapes that record already."""
        if self._recording:
            raise ValueError("The tape records already. Stop it first, or use another tape inside.")
        start(self)
        self._recording = True

    def stop(self) -> None:
        """Record no more. Tapes may end in any order."""
        self._must_record()
        self._recording = False
        stop(self)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Record nothing inside the block."""
        self._must_record()
        self._recording = False
        try:
            yield
        finally:
            self._recording = True

    def _must_record(self) -> None:
        if not self._recording:
            raise ValueError("The tape does not record. Start it first.")

    def reset(self) -> None:
        """Forget everything recorded and watched."""
        self._records: list[Record] = []
        # By identity; holding the object keeps its identity from passing to another.
        self._connected: dict[int, jax.Array] = {}
        self._cells: dict[int, tuple[Cell, list[jax.Array]]] = {}
        self._reads: dict[tuple[int, int], tuple[jax.Array, jax.Array]] = {}

    def watch(self, array: jax.Array) -> None:
        """Note what happens to `array` from now on."""
        self._connected[id(array)] = array

    def watch_cell(self, cell: Cell, array: jax.Array) -> None:
        """Note what happens to all that is read from `cell` from now on; `array` was read just now."""
        _, arrays = self._cells.setdefault(id(cell), (cell, []))
        # What is read while nothing records may be another cell's too (rule 1).
        if self._recording and all(known is not array for known in arrays):
            arrays.append(array)
            self.watch(array)

    def watched_cells(self) -> tuple[Cell, ...]:
        """Return the cells that were watched, in the order of their first reads."""
        return tuple(cell for cell, _ in self._cells.values())

    def connects(self, array: Any) -> bool:
        """Whether `array` is watched or was computed from what is."""
        return id(array) in self._connected

    def note(self, record: Record) -> None:
        """Take in an operation."""
        self._records.append(record)
        self._connected |= {id(output): output for output in record.outputs if is_differentiable(output)}

    def note_read(self, cell: Cell, array: jax.Array, trainable: bool) -> None:
        """Take in that `cell` was read as `array`."""
        if id(cell) in self._cells or (trainable and self._watch_reads):
            self.watch_cell(cell, array)

    def own_read(self, cell: Cell, array: jax.Array, made_on: Trace) -> jax.Array:
        """Return the array object that stands for this value of `cell`, made by `made_on` if it is new."""
        key = (id(cell), id(array))
        if key not in self._reads:
            with set_current_trace(made_on):
                self._reads[key] = (array, _copy(cell, array))
        return self._reads[key][1]

    def gradient(
        self, targets: Sequence[Any], sources: Sequence[Any], cotangents: Sequence[jax.Array | None] | None = None
    ) -> list[Any]:
        """Differentiate the sum of `targets`, each element weighted by its cotangent.

        Runs while other tapes record, it can be differentiated by them; so it can by this one, if it is persistent and
        records still.

        Args:
            targets: Arrays of any shapes; cells count as the value they hold, with a cotangent given.
            sources: Arrays, watched or computed from watched ones, and cells.
            cotangents: For each target an array of its shape and dtype; ones where None.

        Returns:
            For each source an array of its shape and dtype, a `RowGradient` if all that happened to it is `take_rows`, or None
            where no target depends on it; if operations ran in scopes of devices or the source stays on a device, on the
            source's device. As in JAX, the gradient of a real target by a complex `x + iy` is `d/dx - i d/dy`.

        Raises:
            RuntimeError: If the tape has been used and is not persistent.
            LookupError: If a target depends on a source through an operation that has no gradient.
        """
        self._use()
        arrays = [[source, *self._cells.get(id(source), (source, []))[1]] for source in sources]
        wanted = {id(array) for group in arrays for array in group}
        found = self._pull_back(_seeds(targets, cotangents), wanted)
        has_devices = any(record.device is not None for record in self._records) or any(map(_stays, sources))
        if not self._persistent:
            self._records, self._connected, self._reads = [], {}, {}
        totals = [_total([found[id(array)] for array in group if id(array) in found]) for group in arrays]
        return list(map(_beside, totals, arrays)) if has_devices else totals

    def _use(self) -> None:
        if self._used and not self._persistent:
            raise RuntimeError("The tape gave its gradients and let go of the record. Make it with persistent=True.")
        self._used = True
        if self._recording and not self._persistent:
            self.stop()

    def _pull_back(self, cotangents: dict[int, Any], wanted: set[int]) -> dict[int, Any]:
        """Run the pullbacks from the last operation to the first, adding to `cotangents`; those wanted stay in it."""
        watching = recording_below(current_trace())
        for record in reversed(tuple(self._records)):
            taken = [
                dense((cotangents.get if id(o) in wanted else cotangents.pop)(id(o), None)) for o in record.outputs
            ]
            if all(cotangent is None for cotangent in taken):
                continue
            for array, cotangent in zip(record.inputs, record.pull(taken, watching), strict=True):
                _add(cotangents, array, cotangent)
        return cotangents


def is_recording() -> bool:
    """Whether any tape would see what this thread does now, at once or as part of a larger operation."""
    return any(trace.tape.recording for trace in STARTED.get())


def recording_tapes() -> list[Tape]:
    """Return the tapes that record what this thread does, innermost first."""
    return [trace.tape for trace in started_traces() if isinstance(trace.tape, Tape)]


@contextlib.contextmanager
def resuming(tapes: Sequence[Tape]) -> Iterator[None]:
    """Let tapes, innermost first, that have been stopped record inside the block."""
    started = {id(trace.tape) for trace in STARTED.get()}
    stopped = [tape for tape in reversed(tapes) if id(tape) not in started]
    with contextlib.ExitStack() as stack:
        for tape in stopped:
            tape.start()
            stack.callback(tape.stop)
        yield


def observe_read(cell: Cell, array: jax.Array, *, trainable: bool) -> jax.Array:
    """Return what a read of `cell` gives: `array`, or under tapes an object of its own with the same value (rule 1)."""
    traces = traces_that_see(array)
    if not traces or not is_differentiable(array):
        return array
    own = traces[0].tape.own_read(cell, array, traces[-1].parent_trace)
    for trace in traces:
        trace.tape.note_read(cell, own, trainable)
    return own


def _seeds(targets: Sequence[Any], cotangents: Sequence[Any] | None) -> dict[int, Any]:
    seeds: dict[int, Any] = {}
    for target, cotangent in zip(targets, cotangents or [None] * len(targets), strict=True):
        weight = jnp.ones_like(target) if cotangent is None else cotangent
        if is_differentiable(weight):
            _add(seeds, target, weight)
    return seeds


def _add(cotangents: dict[int, Any], array: Any, cotangent: Any) -> None:
    if cotangent is not None:
        present = cotangents.get(id(array))
        cotangents[id(array)] = cotangent if present is None else cotangent + present


def _copy(cell: Cell, array: jax.Array) -> jax.Array:
    """Return a copy of what was read from a cell, that lies where it does, whatever the scope."""
    is_placed = (_stays(cell) or current_device() is not None) and type(array) is ArrayImpl
    device = only_device(array) if is_placed else None
    return jnp.copy(array) if device is None else copy_to(array, device)


def _stays(source: Any) -> bool:
    """Whether a source is a cell whose value stays on a device."""
    return getattr(getattr(source, "storage", None), "device", None) is not None


def _beside(gradient: Any, source: Sequence[Any]) -> Any:
    """Return a source's gradient on the device that the source lies on; in a program being traced, as it is."""
    if isinstance(gradient, RowGradient):
        values, indices = (_beside(part, source) for part in (gradient.values, gradient.indices))
        return RowGradient(values, indices, gradient.shape)
    home = next((only_device(array) for array in source if type(array) is ArrayImpl), None)
    if home is None or type(gradient) is not ArrayImpl or gradient.committed or only_device(gradient) == home:
        return gradient
    with on_device(home):
        return jnp.copy(gradient)  # An operation, which tapes see.


def _total(cotangents: Sequence[Any]) -> Any:
    total = None
    for cotangent in cotangents:
        total = cotangent if total is None else total + cotangent
    return total
