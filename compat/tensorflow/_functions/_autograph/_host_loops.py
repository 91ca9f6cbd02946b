"""Loops over datasets: Python around compiled bodies, since the data comes from the host."""

import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import jax
from malt.operators.function_wrappers import FunctionScope

from tfdist_jax._errors import NotCompilableError
from tfdist_jax.compat.tensorflow._functions._autograph._host import require_host
from tfdist_jax.compat.tensorflow._functions._autograph._symbols import Symbol, filled, symbols, tensors_of, zeros_like
from tfdist_jax.compat.tensorflow._functions._calls import CallCache, is_input
from tfdist_jax.compat.tensorflow._functions._closure_guard import ById, closure_guard, contents


def run_host_loop(
    entries: Any,
    extra_test: Callable[[], Any] | None,
    body: Callable[[Any], Any],
    get_state: Callable[[], tuple[Any, ...]],
    set_state: Callable[[Sequence[Any]], None],
    symbol_names: Sequence[str],
) -> None:
    """Run a `for` statement over a dataset or an iterator over one: each run of the body is one program.

    Raises:
        NeedsHostError: If a function is being traced.
    """
    require_host()
    if extra_test is not None and not extra_test():
        return
    compiled = _compiled_body(body)
    for entry in _every_entry(entries):
        compiled.run(entry, body, get_state, set_state, symbol_names)
        if extra_test is not None and not extra_test():
            return


def _every_entry(entries: Any) -> Iterator[Any]:
    """Iterate as TensorFlow's loops do: also over a last step that iterations in Python end before."""
    iterator = iter(entries)
    return iterator.every_step() if hasattr(iterator, "every_step") else iterator


_bodies: weakref.WeakKeyDictionary[types.CodeType, "_CompiledBody"] = weakref.WeakKeyDictionary()


def _compiled_body(body: Callable[[Any], Any]) -> "_CompiledBody":
    return _bodies.setdefault(body.__code__, _CompiledBody())


@final
class _CompiledBody:
    """The programs of one loop's body. Variables that it changes, entries, and tensors that it reads are inputs."""

    def __init__(self) -> None:
        self._cache = CallCache()

    def run(
        self,
        entry: Any,
        body: Any,
        get_state: Callable[[], tuple[Any, ...]],
        set_state: Callable[[Sequence[Any]], None],
        names: Sequence[str],
    ) -> None:
        """Run the body for one entry."""
        before, others = get_state(), _other_cells(body, names)
        read = [cell for cell in others if _holds_tensors(cell.cell_contents)]
        values = [cell.cell_contents for cell in read]
        guard = [_guard(cell.cell_contents) for cell in others if not _holds_tensors(cell.cell_contents)]

        def set_all(state: Sequence[Any], values: Sequence[Any]) -> None:
            set_state(state)
            for cell, value in zip(read, values, strict=True):
                cell.cell_contents = value

        def program(state: list[Symbol], entry: Any, values: Any) -> list[Symbol]:
            set_all(filled(state, tensors_of(state)), values)
            body(entry)
            return symbols(names, get_state())

        try:
            state = self._defined(
                symbols(names, before), lambda state: (program, (state, entry, values), {}, (*guard,))
            )
            after = self._cache.call(program, (state, entry, values), {}, (*guard,))
        finally:
            set_all(before, values)
        set_state(filled(after, tensors_of(after)))

    def _defined(self, state: list[Symbol], call: Callable[[list[Symbol]], Any]) -> list[Symbol]:
        """Give variables that the body defines a value before it: else the first run would need a program of its own."""
        if not any(symbol.is_undefined for symbol in state):
            return state
        try:
            captured = self._cache.find(*call(state))[0].captured
        except NotCompilableError:
            return state
        shapes = captured.jaxpr.out_avals[: captured.out_tree.num_leaves]
        after = captured.out_tree.unflatten(shapes)
        pairs = zip(state, after, strict=True)
        start = [zeros_like(new) if old.is_undefined else old.filled(old.tensors) for old, new in pairs]
        return symbols([symbol.name for symbol in state], start)


_IGNORED = (FunctionScope, types.ModuleType)


def _other_cells(body: Any, names: Sequence[str]) -> list[types.CellType]:
    """Return the cells of what a body reads, besides the variables that it changes."""
    cells = zip(body.__code__.co_freevars, body.__closure__ or (), strict=True)
    return [cell for name, cell in cells if name not in names and not isinstance(contents(cell), _IGNORED)]


def _guard(value: Any) -> Any:
    """Return a key for something that the body reads, and that counts with its value when the body is traced."""
    if isinstance(value, bool | int | float | str | types.FunctionType):
        return closure_guard(value, ignored=_IGNORED)
    return ById(value)


def _holds_tensors(value: Any) -> bool:
    return any(is_input(leaf) for leaf in jax.tree.leaves(value))
