"""Results with a pullback of the caller's own, for tapes and for JAX's transformations alike."""

from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from tfdist_jax._autodiff._pullbacks import Pullback, RowGradient, is_differentiable
from tfdist_jax._autodiff._tape import Cell, Tape
from tfdist_jax._autodiff._tape_trace import Record, below_tapes, recording_on_top, start, stop
from tfdist_jax._internals import EvalTrace, Trace, current_trace, set_current_trace


def with_pullback(inputs: Sequence[Any], outputs: Sequence[Any], pullback: Pullback) -> list[Any]:
    """Return `outputs` anew, differentiated by `pullback` instead of by how they were computed.

    Args:
        inputs: The arrays that `pullback` gives gradients for. Others that `outputs` depend on get none.
        outputs: Arrays.
        pullback: From a cotangent for each output (None for zero) to one for each input (None for zero). May use
            anything computed on the way to `outputs`, and so be differentiated in turn.
    """
    trace = current_trace()
    base = below_tapes(trace)
    with set_current_trace(base):
        copies = [jnp.copy(output) for output in outputs]
        outputs = copies if isinstance(base, EvalTrace) else _for_jax(inputs, copies, pullback)
    for tape in recording_on_top(trace):
        if any(tape.connects(array) and is_differentiable(array) for array in inputs):
            tape.note(Record(inputs, outputs, pullback))
    return outputs


def unseen(inputs: Sequence[Any], compute: Callable[[], list[Any]], pullback: Pullback) -> list[Any]:
    """Return what `compute()` gives; tapes do not see how, but differentiate by `pullback`.

    Args:
        inputs: The arrays that `pullback` gives gradients for.
        compute: Returns new arrays. Not called on a tape.
        pullback: From a cotangent for each output (None for zero) to one for each input (None for zero).
    """
    trace = current_trace()
    tapes = [tape for tape in recording_on_top(trace) if any(tape.connects(x) and is_differentiable(x) for x in inputs)]
    with set_current_trace(below_tapes(trace)):
        outputs = compute()
    for tape in tapes:
        tape.note(Record(inputs, outputs, pullback))
    return outputs


def take_rows(table: Any, indices: Any, take: Callable[[Any, Any], jax.Array]) -> jax.Array:
    """Return `take(table, indices)`, `[*indices.shape, *row]`; the tapes that watch `table` get a `RowGradient`."""
    trace = current_trace()
    if not is_differentiable(table) or not any(tape.connects(table) for tape in recording_on_top(trace)):
        return take(table, indices)
    with set_current_trace(below_tapes(trace)):
        flat = indices.reshape(-1)

    def pullback(cotangents: Sequence[Any]) -> list[Any]:
        return [RowGradient(cotangents[0].reshape(-1, *table.shape[1:]), flat, tuple(table.shape))]

    (rows,) = unseen([table], lambda: [take(table, indices)], pullback)
    return rows


def reread(value: Any, first: Any) -> Any:
    """Return what was put into a cell: a read of it, as `first` was one before, and not a result of how it was computed."""
    is_smooth = is_differentiable(value) and value.shape == first.shape and value.dtype == first.dtype
    return _reread(value, first) if is_smooth else value


@jax.custom_jvp
def _reread(value: Any, first: Any) -> Any:
    return value


@_reread.defjvp
def _of_first(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    return primals[0], tangents[1]


def _for_jax(inputs: Sequence[Any], outputs: list[Any], pullback: Pullback) -> list[Any]:
    """Return `outputs` behind a custom derivative: the program being traced may be differentiated later."""
    smooth = [i for i, output in enumerate(outputs) if is_differentiable(output)]

    def rule(*cotangents: Any) -> list[Any]:
        given = dict(zip(smooth, cotangents, strict=True))
        gradients = pullback([given.get(i) for i in range(len(outputs))])
        return [
            jnp.zeros_like(x) if g is None else g
            for x, g in zip(inputs, gradients, strict=True)
            if is_differentiable(x)
        ]

    traced = jax.make_jaxpr(rule)(*(jax.typeof(outputs[i]) for i in smooth))

    # What the rule uses must come in as arguments, with no gradient of their own at first order: None, for zeros
    # would be multiplied with what the caller's rule is there to avoid.
    @jax.custom_vjp
    def carry(inputs: list[Any], used: list[Any], outputs: list[Any]) -> list[Any]:
        return outputs

    def forward(*args: Any) -> tuple[list[Any], Any]:
        return carry(*args), args[1]

    def backward(used: list[Any], cotangents: list[Any]) -> tuple[list[Any], None, None]:
        return jaxpr_as_fun(ClosedJaxpr(traced.jaxpr, used))(*cotangents), None, None

    carry.defvjp(forward, backward)
    carried = carry(
        [x for x in inputs if is_differentiable(x)], traced.consts, [jax.lax.stop_gradient(outputs[i]) for i in smooth]
    )
    for i, output in zip(smooth, carried, strict=True):
        outputs[i] = output
    return outputs


def cells_read(fn: Callable[[], Any]) -> tuple[Any, list[tuple[Cell, jax.Array]]]:
    """Call `fn`; return its result and the trainable cells that it read, with the values that it found first."""
    log = _ReadLog()
    start(log)
    try:
        result = fn()
    finally:
        stop(log)
    return result, list(log.reads.values())


@final
class _ReadLog:
    """Notes which trainable cells are read, and nothing else."""

    recording = True

    def __init__(self) -> None:
        self.reads: dict[int, tuple[Cell, jax.Array]] = {}
        self._tape = Tape()

    def connects(self, array: Any) -> bool:
        return False

    def note(self, record: Record) -> None:
        raise AssertionError("Nothing is connected, so nothing is noted.")

    def note_read(self, cell: Cell, array: jax.Array, trainable: bool) -> None:
        if trainable:
            self.reads.setdefault(id(cell), (cell, array))

    def own_read(self, cell: Cell, array: jax.Array, made_on: Trace) -> jax.Array:
        return self._tape.own_read(cell, array, made_on)
