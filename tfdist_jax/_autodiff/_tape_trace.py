"""The trace that hands JAX operations on and notes, for a tape, those that depend on what it watches."""

import dataclasses
import functools
import itertools
import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Protocol, final

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.extend.core import Primitive

from tfdist_jax._autodiff._nested_programs import (
    Params,
    held_arrays,
    run_in_python,
    run_program,
    runs_in_python,
    unused_arguments,
)
from tfdist_jax._autodiff._pullbacks import Operation, Pullback, bound, compute, is_differentiable
from tfdist_jax._device_scope import Device, current_device, on_device
from tfdist_jax._internals import (
    EvalTrace,
    Trace,
    current_trace,
    forget_run,
    has_run,
    set_current_trace,
    set_trace,
    trace_of,
)
from tfdist_jax._thread_state import having, restored


class Recorder(Protocol):
    """What a trace needs of its tape, and a read of a cell of those that see it."""

    @property
    def recording(self) -> bool:
        """Whether operations are being noted."""
        ...

    def connects(self, array: Any) -> bool:
        """Whether `array` is watched or was computed from what is."""
        ...

    def note(self, record: "Record") -> None:
        """Take in an operation."""
        ...

    def note_read(self, cell: Any, array: jax.Array, trainable: bool) -> None:
        """Take in that `cell` was read as `array`."""
        ...

    def own_read(self, cell: Any, array: jax.Array, made_on: Trace) -> jax.Array:
        """Return the array object that stands for this value of `cell`, made by `made_on` if it is new."""
        ...


@final
@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Record:
    """One recorded operation.

    Attributes:
        inputs: The connected arguments.
        outputs: All results.
        pullback: From cotangents of `outputs` to those of `inputs`.
        again: The same from the arguments, in operations that every tape can see; None if `pullback` is such.
        seen_by: The tapes that could see how `pullback` came about.
        device: The device of the scope that the operation ran in, where its pullback runs too; None outside of scopes.
    """

    inputs: Sequence[Any]
    outputs: Sequence[Any]
    pullback: Pullback
    again: Pullback | None = None
    seen_by: tuple[Recorder, ...] = ()
    device: Device | None = dataclasses.field(default_factory=current_device)

    def pull(self, cotangents: Sequence[Any], watching: Sequence[Recorder]) -> Sequence[Any]:
        """Pull back so that the tapes in `watching` can differentiate what happens."""
        seen = {id(tape) for tape in self.seen_by}
        is_seen = all(id(tape) in seen for tape in watching)
        pullback = self.pullback if self.again is None or is_seen else self.again
        if self.device is None:
            return pullback(cotangents)
        with on_device(self.device):
            return pullback(cotangents)


class _Gone:
    """What a trace finds in place of a tape that nothing refers to any more."""

    recording = False

    def connects(self, array: Any) -> bool:
        return False

    def note(self, record: Record) -> None:
        pass

    def note_read(self, cell: Any, array: jax.Array, trainable: bool) -> None:
        pass

    def own_read(self, cell: Any, array: jax.Array, made_on: Trace) -> jax.Array:
        return array


_GONE = _Gone()


class _Anchor:
    """Something to refer to weakly."""


_ANCHOR = _Anchor()
# JAX keys its jit caches by the current trace's weak reference. With one of its own each tape would compile anew.
_SHARED_REFERENCE = weakref.ref(_ANCHOR)


@final
class TapeTrace(Trace):
    """Sits on another trace, which computes. It makes no tracers, so nothing of it can leak.

    An operation with a connected argument is computed through `jax.vjp`: its results once, its pullback kept.
    """

    __slots__ = ("_tape", "parent_trace")

    def __init__(self, parent: Trace, tape: Recorder) -> None:
        """Note for `tape` what `parent` computes."""
        super().__init__()
        self.parent_trace = parent
        # JAX's caches keep traces, in rules for derivatives; through a tape they would keep its arrays.
        self._tape = weakref.ref(tape)
        self.requires_low = False
        self._weakref = _SHARED_REFERENCE

    @property
    def tape(self) -> Recorder:
        """Return the tape, or one that records nothing where it is gone."""
        return self._tape() or _GONE

    def stage_value(self, val: Any) -> Any:
        """Leave constants to the computing trace."""
        return self.parent_trace.stage_value(val)

    def process_primitive(self, primitive: Primitive, args: Sequence[Any], params: Params, /) -> Any:
        """Compute one operation."""
        if not self.tape.recording or not self._must_open(primitive, args, params):
            fixed = range(len(args)) if primitive.name == "stop_gradient" else unused_arguments(primitive, params)
            results = self._compute(bound(primitive, params), args, fixed)
        else:
            with set_current_trace(self):
                results = run_in_python(primitive, args, params)
        return results if primitive.multiple_results else results[0]

    def process_custom_jvp_call(self, primitive: Any, fun: Any, jvp: Any, args: Any, /, **params: Any) -> Any:
        """Compute a function with a custom forward-mode rule."""
        results = self._compute_custom(primitive, args, dict(params, subfuns=(fun, jvp)))
        return _one_has_run(results, fun, jvp)

    def process_custom_vjp_call(self, primitive: Any, fun: Any, fwd: Any, bwd: Any, args: Any, /, **params: Any) -> Any:
        """Compute a function with a custom reverse-mode rule."""
        results = self._compute_custom(primitive, args, dict(params, subfuns=(fun, fwd, bwd)))
        return _one_has_run(results, fun, fwd)

    def process_shard_map(self, *_: Any, **__: Any) -> Any:
        """Refuse a bare shard_map, whose inside cannot be seen; inside jit it is one operation."""
        raise NotImplementedError(
            "A shard_map under a tape must be inside jax.jit: write `jax.jit(jax.shard_map(...))`."
        )

    def _must_open(self, primitive: Primitive, args: Sequence[Any], params: Params) -> bool:
        """Whether connections are hidden in the operation's programs, so that they must run in the open."""
        hidden = any(self.tape.connects(array) for array in held_arrays(params))
        eagerly = self._is_eager()
        if hidden and not runs_in_python(primitive, eagerly=eagerly):
            raise NotImplementedError(
                f"A watched array is captured inside {primitive.name!r}, where the tape cannot follow it. "
                "Pass it to the operation as an argument."
            )
        # JAX has no reverse mode for while loops; run in Python, each step has one.
        is_loop = eagerly and primitive.name == "while"
        return hidden or (is_loop and bool(self._connected(args)))

    def _compute_custom(self, primitive: Primitive, args: Sequence[Any], params: Params) -> list[Any]:
        if not self.tape.recording:
            return self._hand_on(primitive, args, params)
        # On this trace, so that reads of cells inside are noticed.
        with set_current_trace(self):
            program = jax.make_jaxpr(functools.partial(primitive.bind, **params))(*args)
        if any(self.tape.connects(array) for array in held_arrays({"program": program})):
            raise NotImplementedError(
                "A function with a custom derivative uses a watched array or variable that is not one of its "
                "arguments; its rule gives no gradient for it. Pass it to the function as an argument."
            )
        return self._compute(functools.partial(run_program, program), args)

    def _compute(self, operation: Operation, args: Sequence[Any], fixed: Collection[int] = ()) -> list[Any]:
        """Run an operation, differentiated by its connected arguments other than those at `fixed`."""
        moving = tuple(i for i in self._connected(args) if i not in fixed) if self.tape.recording else ()
        with set_current_trace(self.parent_trace):
            if not moving:
                return _distinct(operation(*args), args)
            results, pullback, again = compute(operation, args, moving, eagerly=self._is_eager())
            outputs = _distinct(results, args)
        seen_by = recording_below(self.parent_trace)
        self.tape.note(Record([args[i] for i in moving], outputs, pullback, again, seen_by))
        return outputs

    def _connected(self, args: Sequence[Any]) -> tuple[int, ...]:
        return tuple(i for i, arg in enumerate(args) if self.tape.connects(arg) and is_differentiable(arg))

    def _hand_on(self, primitive: Primitive, args: Sequence[Any], params: Params) -> Any:
        with set_current_trace(self.parent_trace):
            return primitive.bind(*args, **params)

    def _is_eager(self) -> bool:
        return isinstance(below_tapes(self), EvalTrace)


def _one_has_run(results: list[Any], fun: Any, rule: Any) -> list[Any]:
    """Return `results` with the bookkeeping that JAX expects: it asks the one of the two that has run."""
    if has_run(rule):
        forget_run(fun)
    return results


def _distinct(results: list[Any], args: Sequence[Any]) -> list[Any]:
    """Make each result an object of its own: stop_gradient and jit may return their arguments, and one twice."""
    taken = {id(arg) for arg in args}
    for i, result in enumerate(results):
        if id(result) in taken and isinstance(result, jax.Array):
            results[i] = jnp.copy(result)
        taken.add(id(results[i]))
    return results


# The tapes that were started and not stopped, outermost first. As for JAX's own trace context, no argument could carry
# them through user code; and JAX's chain of traces does not reach from inside a shard_map to what is around it.
STARTED: ContextVar[tuple[TapeTrace, ...]] = restored(ContextVar("started_tapes", default=()))


def start(tape: Recorder) -> None:
    """Let `tape` see what this thread does from now on."""
    trace = TapeTrace(_only_started(current_trace()), tape)
    STARTED.set((*STARTED.get(), trace))
    set_trace(trace)


def stop(tape: Recorder) -> None:
    """Take `tape` out of the tapes that see what this thread does, wherever in their order it is."""
    STARTED.set(tuple(trace for trace in STARTED.get() if trace.tape is not tape))
    set_trace(_only_started(current_trace()))


def _only_started(trace: Trace) -> Trace:
    """Return `trace` with the tape traces on top chained anew, less those of tapes that have been stopped."""
    if not isinstance(trace, TapeTrace):
        return trace
    below = _only_started(trace.parent_trace)
    if all(started.tape is not trace.tape for started in STARTED.get()):
        return below
    return trace if below is trace.parent_trace else TapeTrace(below, trace.tape)


def unseen_by_tapes() -> AbstractContextManager[None]:
    """Let the tapes that were started see no read of a cell; operations they see as long as their traces are current."""
    return having(STARTED, ())


def started_traces() -> list[TapeTrace]:
    """Return the traces of the tapes that record in this thread, innermost first."""
    return [trace for trace in reversed(STARTED.get()) if trace.tape.recording]


def traces_that_see(array: jax.Array) -> list[TapeTrace]:
    """Return the traces of recording tapes that `array` can be used on, innermost first.

    A traced array cannot be used outside of the program that it belongs to.
    """
    traces = started_traces()
    if not traces or not isinstance(array, Tracer):
        return traces
    home, here = trace_of(array), list(_chain(current_trace()))
    if any(trace is home for trace in here):
        inside = itertools.takewhile(lambda trace: trace is not home, here)
        tapes = {id(tape) for tape in _tapes_of(inside)}
        return [trace for trace in traces if id(trace.tape) in tapes]
    tapes_outside = {id(tape) for tape in _tapes_of(_chain(home))}
    return [trace for trace in traces if id(trace.tape) not in tapes_outside]


def recording_below(trace: Trace) -> tuple[Recorder, ...]:
    """Return the recording tapes that see what `trace` computes, innermost first."""
    return tuple(tape for tape in _tapes_of(_chain(trace)) if tape.recording)


def recording_on_top(trace: Trace) -> Iterator[Recorder]:
    """Yield the recording tapes that see what `trace` computes with no transformation in between, innermost first."""
    return (tape for tape in _tapes_of(itertools.takewhile(_is_tape_trace, _chain(trace))) if tape.recording)


def below_tapes(trace: Trace) -> Trace:
    """Return the trace that computes for the tapes on top of it."""
    return next(below for below in _chain(trace) if not _is_tape_trace(below))


def _chain(trace: Trace) -> Iterator[Trace]:
    """Yield `trace`, what it computes on, and so on; inside a shard_map or custom derivative JAX breaks the chain."""
    below: Any = trace
    while below is not None:
        yield below
        below = getattr(below, "parent_trace", None)


def _tapes_of(traces: Iterable[Trace]) -> Iterator[Recorder]:
    return (trace.tape for trace in traces if isinstance(trace, TapeTrace))


def _is_tape_trace(trace: Trace) -> bool:
    return isinstance(trace, TapeTrace)
