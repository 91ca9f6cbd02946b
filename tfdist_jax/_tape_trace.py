"""The trace that hands every JAX operation on and notes, for a tape, those that depend on what it watches."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol
from weakref import ref

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax._internals import EvalTrace, Trace, eval_jaxpr, set_current_trace

Pullback = Callable[[Any], Sequence[Any]]


class Recorder(Protocol):
    """What a trace needs from its tape."""

    @property
    def recording(self) -> bool: ...  # noqa: D102

    def connects(self, array: Any) -> bool: ...  # noqa: D102

    def record(self, inputs: Sequence[Any], outputs: Sequence[Any], pullback: Pullback, multiple: bool) -> None: ...  # noqa: D102


def is_differentiable(array: Any) -> bool:
    """Tell whether gradients with respect to `array` exist."""
    return jnp.issubdtype(getattr(array, "dtype", np.float32), jnp.inexact)


class _Token:
    """Something to refer to weakly."""


_TOKEN = _Token()
# JAX's jit caches are keyed by the trace's weak reference: one shared by all tapes, or each tape would compile anew.
_SHARED_REFERENCE = ref(_TOKEN)


class TapeTrace(Trace):
    """Sits on another trace, which computes; holds no tracers, so nothing can leak.

    An operation with a connected input is computed through `jax.vjp`: its result once, its pullback kept.
    """

    __slots__ = ("parent_trace", "tape")

    def __init__(self, parent: Trace, tape: Recorder) -> None:
        """Note operations for `tape` that `parent` computes."""
        super().__init__()
        self.parent_trace = parent
        self.tape = tape
        self.requires_low = False
        self._weakref = _SHARED_REFERENCE

    def stage_value(self, val: Any) -> Any:
        """Leave constants to the computing trace."""
        return self.parent_trace.stage_value(val)

    def cur_qdd(self, x: Any) -> Any:
        """Leave mutable types to the computing trace."""
        return self.parent_trace.cur_qdd(x)

    def process_primitive(self, prim: Any, args: Any, params: Any, /) -> Any:
        """Compute one operation and note it if an input is connected."""
        if self.tape.recording and self._is_eager() and _captures(params, self.tape):
            with set_current_trace(self):
                return _run_in_python(prim, args, params)
        bind = functools.partial(prim.bind, **params)
        return self._process(prim, bind, args, _hashable(params) if self._computes_now() else None)

    def process_custom_jvp_call(self, prim: Any, fun: Any, jvp: Any, args: Any, /, *, symbolic_zeros: Any) -> Any:
        """Compute a function with a custom JVP."""
        self._refuse_hidden_inputs("custom_jvp", fun, args)
        bind = lambda *a: prim.bind(*a, subfuns=(fun, jvp), symbolic_zeros=symbolic_zeros)
        return self._process(prim, bind, args, None)

    def process_custom_vjp_call(
        self, prim: Any, fun: Any, fwd: Any, bwd: Any, args: Any, /, *, out_trees: Any, symbolic_zeros: Any
    ) -> Any:
        """Compute a function with a custom VJP."""
        self._refuse_hidden_inputs("custom_vjp", fun, args)
        bind = lambda *a: prim.bind(*a, subfuns=(fun, fwd, bwd), out_trees=out_trees, symbolic_zeros=symbolic_zeros)
        return self._process(prim, bind, args, None)

    def _process(self, prim: Any, bind: Callable[..., Any], args: Sequence[Any], cache_key: Any) -> Any:
        tape = self.tape
        connected = tuple(i for i, a in enumerate(args) if tape.connects(a) and is_differentiable(a))
        with set_current_trace(self.parent_trace):
            if not connected or not tape.recording:
                return bind(*args)
            results, pullback = _value_and_pullback(prim, bind, args, connected, cache_key)
            outputs = list(results) if prim.multiple_results else [results]
            # stop_gradient and forwarded jit arguments return the input object itself; identity is the key here.
            given = {id(a) for a in args}
            outputs = [jnp.copy(o) if id(o) in given else o for o in outputs]
        tape.record([args[i] for i in connected], outputs, pullback, prim.multiple_results)
        return outputs if prim.multiple_results else outputs[0]

    def _refuse_hidden_inputs(self, kind: str, fun: Any, args: Sequence[Any]) -> None:
        """Raise where a custom derivative's function closes over a watched array, which its rule cannot know."""
        hidden = [value for value in _closed_over(fun) if self.tape.connects(value)]
        given = {id(a) for a in args}
        if self.tape.recording and any(id(value) not in given for value in hidden):
            raise NotImplementedError(
                f"A function with {kind} closes over a watched tensor, whose gradient its rule does not give. "
                "Pass the tensor to the function as an argument."
            )

    def _is_eager(self) -> bool:
        trace: Any = self
        while isinstance(trace, TapeTrace):
            trace = trace.parent_trace
        return isinstance(trace, EvalTrace)

    def _computes_now(self) -> bool:
        return isinstance(self.parent_trace, EvalTrace)


def _value_and_pullback(
    prim: Any, bind: Callable[..., Any], args: Sequence[Any], connected: tuple[int, ...], cache_key: Any
) -> tuple[Any, Pullback]:
    try:
        if cache_key is not None:
            outputs, vjp = _compiled_vjp(prim, cache_key, connected)(*args)
            return outputs, functools.partial(_pull, vjp)
        return jax.vjp(_only(bind, args, connected), *(args[i] for i in connected))
    except (NotImplementedError, ValueError, TypeError) as error:  # How JAX says "no derivative"; `bind` raises real errors.
        reason = error

    def missing(cotangents: Any) -> Any:
        raise LookupError(f"No gradient defined for operation {prim.name!r}: {reason}") from reason

    return bind(*args), missing


def _only(bind: Callable[..., Any], args: Sequence[Any], connected: tuple[int, ...]) -> Callable[..., Any]:
    """Make `bind` a function of the connected arguments."""

    def function(*chosen: Any) -> Any:
        full = list(args)
        for i, value in zip(connected, chosen, strict=True):
            full[i] = value
        return bind(*full)

    return function


@functools.lru_cache(maxsize=4096)
def _compiled_vjp(prim: Any, params: tuple[Any, ...], connected: tuple[int, ...]) -> Callable[..., Any]:
    """Compile result and pullback of one operation: eager differentiation would otherwise trace it at each call."""
    bind = functools.partial(prim.bind, **dict(params))
    return jax.jit(lambda *args: jax.vjp(_only(bind, args, connected), *(args[i] for i in connected)))


_pull = jax.jit(lambda vjp, cotangents: vjp(cotangents))


def _hashable(params: dict[str, Any]) -> tuple[Any, ...] | None:
    key = tuple(params.items())
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _captures(params: dict[str, Any], tape: Recorder) -> bool:
    """Tell whether a nested program of an operation holds a connected array as a constant."""
    return any(tape.connects(const) for sub in _programs(params) for const in _constants(sub))


def _programs(params: dict[str, Any]) -> Iterator[Any]:
    for value in params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if hasattr(item, "eqns") or (hasattr(item, "jaxpr") and hasattr(item, "consts")):
                yield item


@functools.lru_cache(maxsize=256)
def _constants(program: Any) -> tuple[Any, ...]:
    inner = program.jaxpr if hasattr(program, "jaxpr") else program
    nested = [c for eqn in inner.eqns for sub in _programs(eqn.params) for c in _constants(sub)]
    return (*(getattr(program, "consts", None) or ()), *nested)


def _closed_over(fun: Any) -> Iterator[Any]:
    """Yield the arrays in the closure of the Python function inside a wrapped one."""
    function = getattr(fun, "f", fun)
    for part in (function, getattr(function, "func", None), getattr(function, "__wrapped__", None)):
        for cell in getattr(part, "__closure__", None) or ():
            try:
                contents = cell.cell_contents
            except ValueError:  # A cell that is not filled yet holds no array.
                continue
            yield contents
            if callable(contents):
                yield from _closure_values(contents)


def _closure_values(function: Any) -> Iterator[Any]:
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue


def _run_in_python(prim: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Run control flow whose body holds a watched array as a constant operation by operation."""
    match prim.name:
        case "jit" | "pjit" | "closed_call" | "remat" | "remat2" | "checkpoint":
            return _run_program(params["jaxpr"], *args)
        case "cond":
            branches = params["branches"]
            chosen = min(max(int(args[0]), 0), len(branches) - 1)
            return _run_program(branches[chosen], *args[1:])
        case "scan":
            return _run_scan(args, params)
    raise NotImplementedError(
        f"A watched tensor is captured inside {prim.name!r}. Pass it as an argument, or compute in tf.function."
    )


def _run_program(program: Any, *args: Any) -> Any:
    inner = program.jaxpr if hasattr(program, "jaxpr") else program
    return eval_jaxpr(inner, getattr(program, "consts", None) or (), *args)


def _run_scan(args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    if "num_consts" in params:
        num_consts, num_carry = params["num_consts"], params["num_carry"]
    else:  # jax 0.12
        consts, carried, _ = params["ft_in"].unpack()
        num_consts, num_carry = len(list(consts)), len(list(carried))
    consts, carry, scanned = args[:num_consts], list(args[num_consts:][:num_carry]), args[num_consts + num_carry :]
    order = range(params["length"])
    outputs = []
    for i in reversed(order) if params["reverse"] else order:
        results = _run_program(params["jaxpr"], *consts, *carry, *(x[i] for x in scanned))
        carry, rest = results[:num_carry], results[num_carry:]
        outputs.append(rest)
    if params["reverse"]:
        outputs.reverse()
    return [*carry, *(jnp.stack(column) for column in zip(*outputs, strict=True))]
