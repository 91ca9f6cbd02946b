"""`while` and `for` statements over tensors and datasets."""

import contextlib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.core import Tracer

from tfdist_jax._errors import ConcreteValueRequiredError
from tfdist_jax._stateful import _control_flow
from tfdist_jax.compat.tensorflow._functions._autograph._branches import as_condition, if_stmt, is_traced
from tfdist_jax.compat.tensorflow._functions._autograph._host import is_host_iterable
from tfdist_jax.compat.tensorflow._functions._autograph._host_loops import run_host_loop
from tfdist_jax.compat.tensorflow._functions._autograph._ranges import TracedRange
from tfdist_jax.compat.tensorflow._functions._autograph._symbols import Symbol, filled, symbols, tensors_of, zeros_like
from tfdist_jax.compat.tensorflow._functions._closure_guard import contents
from tfdist_jax.compat.tensorflow._ops._arguments import static_int
from tfdist_jax.compat.tensorflow._ops._tensor_array import TensorArray
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._tensor import is_tracing
from tfdist_jax.compat.tensorflow._variables._variable import Variable

GetState = Callable[[], tuple[Any, ...]]
SetState = Callable[[Sequence[Any]], None]


def while_stmt(
    test: Callable[[], Any],
    body: Callable[[], Any],
    get_state: GetState,
    set_state: SetState,
    symbol_names: Sequence[str],
    opts: Mapping[str, Any],
) -> None:
    """Run a `while` statement: Python's as long as the condition is known, XLA's from where it is a tensor.

    Args:
        test: Returns the condition.
        body: Runs the loop's body once.
        get_state: Returns the variables that the loop changes.
        set_state: Gives them values.
        symbol_names: Their names.
        opts: What `tf.autograph.experimental.set_loop_options` has set, such as `maximum_iterations`.
    """
    while not is_traced(condition := test()):
        if not condition:
            return
        body()
    limit = opts.get("maximum_iterations")
    if limit is not None:
        nothing = lambda: None
        step = lambda _: if_stmt(test(), body, nothing, get_state, set_state, symbol_names, len(symbol_names))
        positions = jnp.arange(static_int(limit, "maximum_iterations"))
        _LoopOfKnownLength(positions, step, get_state, set_state, symbol_names, opts).run()
        return
    _While(test, body, get_state, set_state, symbol_names, opts).run()


def for_stmt(
    iter_: Any,
    extra_test: Callable[[], Any] | None,
    body: Callable[[Any], Any],
    get_state: GetState,
    set_state: SetState,
    symbol_names: Sequence[str],
    opts: Mapping[str, Any],
) -> None:
    """Run a `for` statement: over a tensor as one loop of the program, over datasets on the host, else as Python.

    Args:
        iter_: What is iterated over.
        extra_test: Returns whether to go on, where the loop has a `break` or `return`; or None.
        body: Runs the loop's body for one entry.
        get_state: Returns the variables that the loop changes.
        set_state: Gives them values.
        symbol_names: Their names.
        opts: As for `while_stmt`.
    """
    step = body
    if extra_test is not None:
        nothing = lambda: None
        run_if_not_left = lambda entry: if_stmt(
            extra_test(), lambda: body(entry), nothing, get_state, set_state, symbol_names, len(symbol_names)
        )
        step = run_if_not_left
    if isinstance(iter_, TracedRange):
        _run_traced_range(iter_, extra_test, body, get_state, set_state, symbol_names, opts)
    elif isinstance(iter_, jax.Array) and is_tracing():
        if iter_.ndim == 0:
            raise ValueError("Cannot iterate over a scalar tensor: a `for` loop needs a tensor of rank 1 or more.")
        _LoopOfKnownLength(iter_, step, get_state, set_state, symbol_names, opts).run()
    elif is_host_iterable(iter_):
        run_host_loop(iter_, extra_test, body, get_state, set_state, symbol_names)
    else:
        _run_python_loop(iter_, extra_test, step)


def _run_python_loop(entries: Iterable[Any], extra_test: Callable[[], Any] | None, step: Callable[[Any], Any]) -> None:
    """Unroll the loop; once whether to go on is a tensor, further iterations are branches of the program."""
    if extra_test is not None and not _goes_on(extra_test()):
        return
    for entry in entries:
        step(entry)
        if extra_test is not None and not _goes_on(extra_test()):
            return


def _goes_on(condition: Any) -> bool:
    return is_traced(condition) or bool(condition)


def _run_traced_range(
    entries: TracedRange,
    extra_test: Callable[[], Any] | None,
    body: Callable[[Any], Any],
    get_state: GetState,
    set_state: SetState,
    symbol_names: Sequence[str],
    opts: Mapping[str, Any],
) -> None:
    position = [entries.start]

    def test() -> Any:
        inside = entries.contains(position[0])
        return inside if extra_test is None else inside & as_condition(extra_test())

    def step() -> None:
        body(position[0])
        position[0] = position[0] + entries.delta

    get_all = lambda: (*get_state(), position[0])

    def set_all(values: Sequence[Any]) -> None:
        set_state(values[:-1])
        position[0] = values[-1]

    _While(test, step, get_all, set_all, (*symbol_names, "the position in tf.range"), opts).run()


def _lists(fn: Any, depth: int = 3) -> Iterator[tuple[str, list[Any]]]:
    """Yield the lists that a function and those that it calls can reach by a variable's name."""
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        value = contents(cell)
        if type(value) is list:
            yield name, value
        elif isinstance(value, types.FunctionType) and depth:
            yield from _lists(value, depth - 1)


class _Changed(Exception):
    """Some variables have got another kind of value in the loop, with zeros of which it can start as well."""

    def __init__(self, start: list[Symbol]) -> None:
        super().__init__()
        self.start = start


class _Loop:
    """A loop whose body is traced once; the variables that it changes are carried from iteration to iteration."""

    def __init__(self, get_state: GetState, set_state: SetState, names: Sequence[str], opts: Mapping[str, Any]) -> None:
        self._get_state, self._set_state, self._names = get_state, set_state, names
        self._shapes_may_change = bool(opts.get("shape_invariants"))

    def run(self) -> None:
        """Run the loop, starting again with what the first attempts have found out about the variables."""
        start = list(self._get_state())
        while True:
            carried = symbols(self._names, start)
            try:
                tensors = self._run(carried)
            except _Changed as changed:
                pairs = zip(carried, changed.start, strict=True)
                start = [_start_value(old, new) for old, new in pairs]
            else:
                self._set_state(filled(carried, tensors))
                return

    def _run(self, carried: list[Symbol]) -> Sequence[Any]:
        raise NotImplementedError

    def _one_iteration(self, carried: list[Symbol], tensors: Sequence[Any], body: Callable[[], Any]) -> list[Any]:
        self._set_state(filled(carried, tensors))
        lists = [(name, items, len(items)) for name, items in _lists(body)]
        body()
        for name, items, length in lists:
            if len(items) != length:
                raise ValueError(
                    f"The list {name!r} grows in a loop over tensors, which is one loop of the program. Use tf.TensorArray."
                )
        ends = symbols(self._names, self._get_state())
        start = [_new_start(*pair, self._shapes_may_change) for pair in zip(carried, ends, strict=True)]
        if any(new is not old for new, old in zip(start, carried, strict=True)):
            raise _Changed(start)
        return tensors_of(ends)


@final
class _While(_Loop):
    def __init__(self, test: Callable[[], Any], body: Callable[[], Any], *state: Any) -> None:
        super().__init__(*state)
        self._test, self._body = test, body

    def _run(self, carried: list[Symbol]) -> Sequence[Any]:
        def condition(*tensors: Any) -> Any:
            self._set_state(filled(carried, tensors))
            return as_condition(self._test())

        step = lambda *tensors: self._one_iteration(carried, tensors, self._body)
        return _control_flow.while_loop(condition, step, tensors_of(carried))


@final
class _LoopOfKnownLength(_Loop):
    def __init__(self, entries: Any, step: Callable[[Any], Any], *state: Any) -> None:
        super().__init__(*state)
        self._entries, self._step = entries, step

    def run(self) -> None:
        length, start = self._entries.shape[0], self._get_state()
        if not length:
            return
        try:
            super().run()
        except ConcreteValueRequiredError:
            self._set_state(start)
            if self._run_with_room():
                return
            self._set_state(start)
            if length > _LONGEST_UNROLLED:
                raise
            # Something else grows in it, or needs the entries' values: unrolled, it may be a program all the same.
            self._unroll()

    def _unroll(self) -> None:
        for entry in _rows(self._entries):
            self._step(entry)

    def _run_with_room(self) -> bool:
        """Run the loop with tf.TensorArrays that have their final sizes from the start, if these can be found out."""
        start, sizes = self._get_state(), []

        def unroll() -> None:
            self._unroll()
            sizes.extend(len(array) for array in _arrays(self._get_state()))

        try:
            _control_flow.dry_run(unroll)
            final = iter(sizes)
            self._set_state(_map_arrays(lambda array: array.with_room(next(final)), start))
            super().run()
        except ConcreteValueRequiredError:
            return False
        self._set_state(_map_arrays(TensorArray.grown, self._get_state()))
        return True

    def _run(self, carried: list[Symbol]) -> Sequence[Any]:
        def iteration(tensors: Any, entry: Any) -> Any:
            return self._one_iteration(carried, tensors, lambda: self._step(entry)), ()

        return _control_flow.scan(iteration, tensors_of(carried), self._entries)[0]


_LONGEST_UNROLLED = 64


def _is_array(value: Any) -> bool:
    return isinstance(value, TensorArray)


def _arrays(state: Any) -> list[TensorArray]:
    return [leaf for leaf in jax.tree.leaves(state, is_leaf=_is_array) if _is_array(leaf)]


def _map_arrays(fn: Callable[[TensorArray], TensorArray], state: Any) -> Any:
    change = lambda leaf: fn(leaf) if _is_array(leaf) else leaf
    return jax.tree.map(change, state, is_leaf=lambda leaf: leaf is None or _is_array(leaf))


def _rows(entries: jax.Array) -> list[jax.Array]:
    """Return the entries of a tensor; they keep their values, if they are known, while a function is traced."""
    with contextlib.nullcontext() if isinstance(entries, Tracer) else jax.ensure_compile_time_eval():
        return [entries[i] for i in range(entries.shape[0])]


def _start_value(before: Symbol, start: Symbol) -> Any:
    """Return with what a variable enters the loop: its value, or zeros where it has none."""
    if start is before:
        return before.filled(before.tensors)
    variable = before.filled(before.tensors)
    return variable.read_value() if isinstance(variable, Variable) else zeros_like(start)


def _new_start(before: Symbol, after: Symbol, shape_may_change: bool) -> Symbol:
    """Return `before` if one iteration keeps the variable's type, else a value like which it should start.

    Raises:
        TypeError: If the variable changes in a way that a loop of the program cannot express.
        ValueError: If its shape changes.
        ConcreteValueRequiredError: If it may: the loop cannot be one of the program, but can run as Python.
    """
    if before.is_undefined:
        return before if after.is_undefined else after
    if not before.is_like(after):
        if _is_growing_array(before, after) or _becomes_tensor(before, after):
            return after
        if before.holds_host_values or after.holds_host_values:
            raise ConcreteValueRequiredError(
                f"{before.shown} is strings, or ragged, in a loop over tensors, which only the host has."
            )
        raise TypeError(
            f"{before.shown} does not have the same structure after one iteration of a loop over tensors as "
            f"before: {before.structure} became {after.structure}. Values that are no tensors must stay the same "
            "object; to collect results use tf.TensorArray."
        )
    for a, b in zip(before.tensors, after.tensors, strict=True):
        if a.dtype != b.dtype:
            raise TypeError(
                f"{before.shown} has dtype {a.dtype.name} before the loop, but dtype {b.dtype.name} after one "
                "iteration. Start with a tensor of that type, such as `tf.constant(0.0)`."
            )
        if a.shape != b.shape:
            raise (ConcreteValueRequiredError if shape_may_change else ValueError)(
                f"{before.shown} has shape {a.shape} before the loop, but shape {b.shape} after one iteration. "
                "XLA needs fixed shapes: use tf.TensorArray, or a tensor of the final shape. With `shape_invariants` from "
                "tf.autograph.experimental.set_loop_options the function runs as Python."
            )
    return before


def _becomes_tensor(before: Symbol, after: Symbol) -> bool:
    """Tell whether the name of a tf.Variable has been given to a tensor of its type."""
    variable, tensors = before.filled(before.tensors), after.tensors
    if not isinstance(variable, Variable) or len(tensors) != 1 or after.constants:
        return False
    return (tuple(variable.shape), variable.dtype) == (tuple(tensors[0].shape), as_dtype(tensors[0].dtype))


def _is_growing_array(before: Symbol, after: Symbol) -> bool:
    """Tell whether the variable is a TensorArray that has got its first element.

    Raises:
        ConcreteValueRequiredError: If it has got longer.
    """
    old, new = (symbol.filled(symbol.tensors) for symbol in (before, after))
    if not (_is_array(old) and _is_array(new)):
        return False
    if old.places < new.places:
        raise ConcreteValueRequiredError(f"{before.shown} gets longer in a loop over tensors.")
    return old.is_empty
