"""A tape: records what happens to watched arrays, eagerly or while a program is traced, and differentiates it.

Arrays are told apart by object identity. That is safe under three rules: a cell's read under a tape returns an
array object of its own for each value the cell had; a watched array that a nested program holds as a constant makes
that program run operation by operation (or raises); the chain of traces is rebuilt whenever a tape starts or ends.
"""

import contextlib
import dataclasses
import threading
from collections.abc import Iterator, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax._internals import Trace, current_trace, set_current_trace, set_trace
from tfdist_jax._tape_trace import Pullback, TapeTrace, is_differentiable

Cell = Any
"""An object that holds an array; see `tfdist_jax._state.Cell`."""


class _Tapes(threading.local):
    """The recording tapes of a thread, outermost first."""

    def __init__(self) -> None:
        self.stack: list[Tape] = []


_tapes = _Tapes()


@dataclasses.dataclass(frozen=True)
class _Operation:
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    pullback: Pullback
    multiple: bool


@final
class Tape:
    """Records operations on watched arrays and cells; gives gradients of any recorded result."""

    def __init__(self, *, persistent: bool = False, watch_reads: bool = True) -> None:
        """Make a tape.

        Args:
            persistent: Keep the record after `gradient`, so that it may be called again.
            watch_reads: Watch every trainable cell that is read while recording.
        """
        self._persistent = persistent
        self._watch_reads = watch_reads
        self._recording = False
        self._base: Trace | None = None
        self.reset()

    def reset(self) -> None:
        """Forget everything recorded and watched."""
        self._operations: list[_Operation] = []
        # Identity to object: holding the object keeps its identity from being given to another.
        self._connected: dict[int, Any] = {}
        self._cells: dict[int, tuple[Cell, list[Any]]] = {}
        self._reads: dict[tuple[int, int], tuple[Any, Any]] = {}

    def keep(self, persistent: bool) -> None:
        """Say whether `gradient` keeps the record."""
        self._persistent = persistent

    @property
    def recording(self) -> bool:
        """Whether operations are being noted."""
        return self._recording

    def start(self) -> None:
        """Begin to record, inside the tapes that record already."""
        if self._recording:
            raise ValueError("Tape is still recording, this can happen if you try to re-enter an already-active tape.")
        self._base = _base_trace()
        self._recording = True
        _tapes.stack.append(self)
        _rebuild_chain(self._base)

    def stop(self) -> None:
        """End recording; tapes may end in any order."""
        if not self._recording:
            raise ValueError("Tape is not recording.")
        self._recording = False
        _tapes.stack.remove(self)
        _rebuild_chain(self._base)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Record nothing inside the block."""
        if not self._recording:
            raise ValueError("Tape is not recording.")
        position = _tapes.stack.index(self)
        self.stop()
        try:
            yield
        finally:
            self._recording = True
            _tapes.stack.insert(position, self)
            _rebuild_chain(self._base)

    def watch(self, array: jax.Array) -> None:
        """Note what happens to `array` from now on."""
        self._connected[id(array)] = array

    def watch_cell(self, cell: Cell, array: jax.Array) -> None:
        """Count `array`, just read from `cell`, as the cell's value for gradients."""
        _, arrays = self._cells.setdefault(id(cell), (cell, []))
        if not any(known is array for known in arrays):
            arrays.append(array)
        self.watch(array)

    def watched_cells(self) -> tuple[Cell, ...]:
        """Return the cells that were read or watched, in order of their first read."""
        return tuple(cell for cell, _ in self._cells.values())

    def connects(self, array: Any) -> bool:
        """Tell whether `array` is watched or was computed from what is."""
        return id(array) in self._connected

    def record(self, inputs: Sequence[Any], outputs: Sequence[Any], pullback: Pullback, multiple: bool) -> None:
        """Note an operation; called by the trace."""
        self._operations.append(_Operation(inputs, outputs, pullback, multiple))
        for output in outputs:
            if is_differentiable(output):
                self._connected[id(output)] = output

    def gradient(
        self, targets: Sequence[jax.Array], sources: Sequence[Any], cotangents: Sequence[jax.Array | None] | None = None
    ) -> list[jax.Array | None]:
        """Differentiate the sum of `targets`.

        Args:
            targets: Arrays of any shapes.
            sources: Watched or recorded arrays, or cells.
            cotangents: Weights of each target's elements; ones where None.

        Returns:
            The gradient for each source, of its shape and dtype; None where no target depends on it.
        """
        wanted = {id(array) for source in sources for array in self._arrays(source)}
        found = _pull_back(self._operations, _seeds(targets, cotangents), wanted)
        result = [_total([found[id(a)] for a in self._arrays(source) if id(a) in found]) for source in sources]
        if not self._persistent:
            self._operations, self._connected, self._reads = [], {}, {}
        return result

    def _arrays(self, source: Any) -> list[Any]:
        return self._cells[id(source)][1] if id(source) in self._cells else [source]

    def own_read(self, cell: Cell, array: jax.Array) -> jax.Array:
        """Return an array object for this value of `cell` that no other cell or computation shares."""
        key = (id(cell), id(array))
        if key not in self._reads:
            with set_current_trace(self._base):
                self._reads[key] = (array, jnp.copy(array))
        return self._reads[key][1]

    def note_read(self, cell: Cell, array: jax.Array) -> None:
        """Watch a trainable cell that was read, if this tape watches reads."""
        if self._watch_reads and is_differentiable(array):
            self.watch_cell(cell, array)


def is_recording() -> bool:
    """Tell whether any tape of this thread records."""
    return bool(_tapes.stack)


def observe_read(cell: Cell, array: jax.Array, *, trainable: bool) -> jax.Array:
    """Return what a read of `cell` gives: `array`, or under tapes an object of its own with the same value."""
    if not _tapes.stack or isinstance(array, np.ndarray):
        return array
    own = _tapes.stack[0].own_read(cell, array)
    if trainable:
        for tape in _tapes.stack:
            tape.note_read(cell, own)
    return own


@contextlib.contextmanager
def without_tapes() -> Iterator[None]:
    """Hide this thread's tapes, for a program that is traced to be run as one operation later."""
    hidden, _tapes.stack = _tapes.stack, []
    try:
        yield
    finally:
        _tapes.stack = hidden


def _base_trace() -> Trace:
    trace = current_trace()
    while isinstance(trace, TapeTrace):
        trace = trace.parent_trace
    return trace


def _rebuild_chain(base: Trace | None) -> None:
    """Make the current trace `base` under every recording tape that was started on it."""
    trace: Any = base
    for tape in _tapes.stack:
        if tape._base is base:  # noqa: SLF001
            trace = TapeTrace(trace, tape)
    set_trace(trace)


def _seeds(targets: Sequence[Any], cotangents: Sequence[Any] | None) -> list[tuple[Any, Any]]:
    weights = [None] * len(targets) if cotangents is None else cotangents
    return [
        (target, jnp.ones_like(target) if weight is None else jnp.asarray(weight, target.dtype))
        for target, weight in zip(targets, weights, strict=True)
        if is_differentiable(target)
    ]


def _pull_back(operations: Sequence[_Operation], seeds: Sequence[tuple[Any, Any]], wanted: set[int]) -> dict[int, Any]:
    """Run the pullbacks from the last operation to the first; return the cotangents of the wanted arrays."""
    cotangents: dict[int, Any] = {}
    kept: dict[int, Any] = {}

    def add(array: Any, cotangent: Any) -> None:
        if getattr(cotangent, "dtype", None) != jax.dtypes.float0:
            present = cotangents.get(id(array))
            cotangents[id(array)] = cotangent if present is None else present + cotangent

    for target, weight in seeds:
        add(target, weight)
    for operation in reversed(operations):
        got = [cotangents.pop(id(output), None) for output in operation.outputs]
        if all(cotangent is None for cotangent in got):
            continue
        kept |= {id(o): c for o, c in zip(operation.outputs, got, strict=True) if c is not None and id(o) in wanted}
        full = [_zero(o) if c is None else c for o, c in zip(operation.outputs, got, strict=True)]
        for array, cotangent in zip(operation.inputs, operation.pullback(full if operation.multiple else full[0]), strict=True):
            add(array, cotangent)
    return {**{key: value for key, value in cotangents.items() if key in wanted}, **kept}


def _zero(output: Any) -> Any:
    if is_differentiable(output):
        return jnp.zeros(output.shape, output.dtype)
    return np.zeros(np.shape(output), jax.dtypes.float0)


def _total(cotangents: list[Any]) -> Any:
    total = None
    for cotangent in cotangents:
        total = cotangent if total is None else total + cotangent
    return total
