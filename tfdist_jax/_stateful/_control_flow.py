"""Conditionals and loops whose bodies read and write cells."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from tfdist_jax._autodiff._custom_pullback import reread
from tfdist_jax._autodiff._nested_programs import has_collective
from tfdist_jax._autodiff._tape import observe_read
from tfdist_jax._autodiff._while_loop import repeat
from tfdist_jax._internals import Trace, current_trace, set_current_trace
from tfdist_jax._stateful._state import Cell, Merge, StateScope, current_scope, entering, load, write


@final
class BranchesDifferError(TypeError):
    """The branches of a conditional return what cannot be the results of one."""


@final
class BodyScope(StateScope):
    """The cells as one run of a body sees them; its writes are results of the body."""

    def __init__(
        self, outer: StateScope | None, given: Sequence[tuple[Cell, Any]] = (), around: Trace | None = None
    ) -> None:
        """Read cells through `outer`, but start with the given values in some; `around` is the trace that the body is a part of."""
        self._outer, self._around, self._root = outer, around or current_trace(), current_trace()
        self._values = {id(cell): value for cell, value in given}
        self.merges: dict[int, tuple[Cell, Merge]] = {}

    @property
    def is_update(self) -> bool:
        """Whether the body is part of an update."""
        return self._outer is not None and self._outer.is_update

    def after_run(self, check: Callable[[], None]) -> bool:
        """Let the surrounding program call `check`."""
        return self._outer is not None and self._outer.after_run(check)

    def read(self, cell: Cell) -> jax.Array:
        """Return the value at this point of the body; tapes around it see a read of one that the body has written, too."""
        if id(cell) not in self._values:
            return self._read_outside(cell)
        with set_current_trace(self._around):
            first = observe_read(cell, self._read_outside(cell), trainable=cell.trainable)
        with set_current_trace(self._root):
            return reread(self._values[id(cell)], first)

    def written(self) -> list[jax.Array]:
        """Return the last values of the cells in `merges`."""
        return [self._values[number] for number in self.merges]

    def _read_outside(self, cell: Cell) -> jax.Array:
        return load(cell) if self._outer is None else self._outer.read(cell)

    def write(self, cell: Cell, array: jax.Array, merge: Merge) -> None:
        """Change the value for the rest of the body."""
        earlier = self.merges.get(id(cell), (cell, merge))[1]
        self.merges[id(cell)] = (cell, max(earlier, merge, key=lambda m: m.value))
        self._values[id(cell)] = array


class _Traced(NamedTuple):
    """A body as a jaxpr.

    Attributes:
        jaxpr: Takes the arguments' arrays, then the given cells' values; gives the results' arrays, then the new
            values of the written cells.
        tree: The structure of the results.
        merges: The written cells, in order, and how replicas' values of them meet.
    """

    jaxpr: ClosedJaxpr
    tree: Any
    merges: list[tuple[Cell, Merge]]

    def result_types(self) -> Sequence[Any]:
        """Return the shapes and types of the results' arrays."""
        return self.jaxpr.out_avals[: len(self.jaxpr.out_avals) - len(self.merges)]

    def run(self, *arrays: Any) -> tuple[list[Any], dict[int, Any]]:
        """Return the results' arrays, and the new values by the cells' identity."""
        outputs = jaxpr_as_fun(self.jaxpr)(*arrays)
        split = len(outputs) - len(self.merges)
        values = zip(self.merges, outputs[split:], strict=True)
        return outputs[:split], {id(cell): value for (cell, _), value in values}


def _trace(fn: Callable[..., Any], arguments: Any, given: Sequence[Cell]) -> _Traced:
    leaves, tree = jax.tree.flatten(arguments)
    outer, around, found = current_scope(), current_trace(), {}

    def pure(leaves: list[Any], values: list[Any]) -> Any:
        scope = BodyScope(outer, list(zip(given, values, strict=True)), around)
        with entering(scope):
            results, found["tree"] = jax.tree.flatten(fn(*jax.tree.unflatten(tree, leaves)))
            arrays = [jnp.asarray(result) for result in results]  # A result may be a variable, which is read here.
        found["merges"] = list(scope.merges.values())
        return arrays, scope.written()

    jaxpr = jax.make_jaxpr(pure)([jnp.asarray(leaf) for leaf in leaves], [_present(cell) for cell in given])
    return _Traced(jaxpr, found["tree"], found["merges"])


def dry_run(fn: Callable[[], None]) -> None:
    """Trace a function for what it tells Python; nothing of it becomes part of the program."""

    def run() -> None:
        with entering(BodyScope(current_scope())):
            fn()

    jax.eval_shape(run)


def _present(cell: Cell) -> Any:
    scope = current_scope()
    return load(cell) if scope is None else scope.read(cell)


def _union(*bodies: _Traced) -> list[tuple[Cell, Merge]]:
    merges: dict[int, tuple[Cell, Merge]] = {}
    for cell, merge in (written for body in bodies for written in body.merges):
        earlier = merges.get(id(cell), (cell, merge))[1]
        merges[id(cell)] = (cell, max(earlier, merge, key=lambda m: m.value))
    return list(merges.values())


def branch(index: Any, branches: Sequence[Callable[[], Any]]) -> Any:
    """Run the branch that a number chooses, out of range the last one, when the program runs.

    Args:
        index: int32 scalar.
        branches: Functions without arguments. All are traced, once; they return the same structure, shapes and types
            and may write cells.

    Returns:
        What the chosen branch returns.

    Raises:
        TypeError: If the branches' results differ in structure, shape or type.
    """
    return _switch(jnp.clip(index, 0, len(branches) - 1), _trace_branches(branches))


def branch_padded(
    index: Any, branches: Sequence[Callable[[], Any]], axis: str
) -> tuple[Any, list[list[tuple[int, ...]]]]:
    """Run the branch that a number chooses, as `branch` does, each device along a mesh axis its own one.

    Args:
        index: int32 scalar.
        branches: As in `branch`, but the lengths of their results may differ.
        axis: The axis.

    Returns:
        What the chosen branch returns, each array filled up with zeros to the most that any branch gives; and for each branch
        the shapes of what it returns.

    Raises:
        BranchesDifferError: If the results differ in structure, type or number of dimensions; or if devices would meet in one of
            the branches, for which those in another one do not come.
    """
    traced = _trace_branches(branches)
    if any(has_collective(body.jaxpr, axis) for body in traced):
        raise BranchesDifferError(f"A branch has a collective over the axis {axis!r}.")
    shapes = [[aval.shape for aval in body.result_types()] for body in traced]
    for types in zip(*(body.result_types() for body in traced), strict=True):
        if len({(aval.dtype, aval.ndim) for aval in types}) > 1:
            raise BranchesDifferError(f"The branches return different types: {types}.")
    largest = [tuple(map(max, *of_one, of_one[0])) for of_one in zip(*shapes, strict=True)]
    fill = lambda results: list(map(pad_to, results, largest))
    return _switch(index, traced, fill), shapes


def _trace_branches(branches: Sequence[Callable[[], Any]]) -> list[_Traced]:
    traced = [_trace(fn, (), ()) for fn in branches]
    if len({body.tree for body in traced}) > 1:
        raise BranchesDifferError(f"The branches return different structures: {[body.tree for body in traced]}.")
    return traced


def pad_to(array: jax.Array, shape: Sequence[int]) -> jax.Array:
    """Fill an array up with zeros at the ends of its dimensions."""
    missing = [(0, wanted - size) for size, wanted in zip(array.shape, shape, strict=True)]
    return jnp.pad(array, missing) if any(after for _, after in missing) else array


def _switch(index: Any, traced: Sequence[_Traced], change: Callable[[list[Any]], list[Any]] = list) -> Any:
    """Run one of several bodies, and `change` on its results; all write the cells that any of them does."""
    written = _union(*traced)
    before = [_present(cell) for cell, _ in written]

    def run(body: _Traced) -> Callable[[], Any]:
        def call() -> Any:
            results, values = body.run()
            return change(results), [values.get(id(cell), old) for (cell, _), old in zip(written, before, strict=True)]

        return call

    results, after = jax.lax.switch(index, [run(body) for body in traced])
    for (cell, merge), value in zip(written, after, strict=True):
        write(cell, value, merge=merge)
    return jax.tree.unflatten(traced[0].tree, results)


def _trace_repeated(fn: Callable[..., Any], arguments: Any) -> tuple[_Traced, list[Cell]]:
    """Trace the body of a loop, with the cells that it writes as inputs too: a second time, if there are any."""
    cells: list[Cell] = []
    while True:
        body = _trace(fn, arguments, cells)
        known = {id(cell) for cell in cells}
        new = [cell for cell, _ in body.merges if id(cell) not in known]
        if not new:
            return body, cells
        cells += new


def while_loop(condition: Callable[..., Any], body: Callable[..., Any], variables: Sequence[Any]) -> Any:
    """Repeat `variables = body(*variables)` as long as `condition(*variables)`, when the program runs.

    Args:
        condition: Returns a boolean scalar; it may read cells.
        body: Returns as many values as there are variables, of the same structures, shapes and types; it may write
            cells.
        variables: The first values.

    Returns:
        The last values, as a list.
    """
    once, cells = _trace_repeated(lambda *values: list(body(*values)), variables)
    check = _trace(condition, variables, cells)
    start = [jnp.asarray(leaf) for leaf in jax.tree.leaves(list(variables))]

    def step(carry: Any) -> Any:
        leaves, values = carry
        results, new = once.run(*leaves, *values)
        return results, [new.get(id(cell), old) for cell, old in zip(cells, values, strict=True)]

    carry = (start, [_present(cell) for cell in cells])
    results, after = repeat(lambda carry: check.run(*carry[0], *carry[1])[0][0], step, carry)
    _write_back(once, cells, after)
    return jax.tree.unflatten(once.tree, results)


def scan(body: Callable[[Any, Any], tuple[Any, Any]], start: Any, entries: Any, *, length: int | None = None) -> Any:
    """Run `carry, result = body(carry, entry)` for each entry along the first axis, when the program runs.

    Args:
        body: Returns a carry like the one it gets, and any structure of arrays; it may write cells.
        start: The first carry.
        entries: Structure of arrays with equal first axes.
        length: Number of runs, where there are no entries.

    Returns:
        The last carry, and the results stacked along a new first axis. Differentiable, unlike `while_loop`.
    """
    once, cells = _trace_repeated(body, (start, jax.tree.map(_first, entries)))
    carry_leaves, carry_tree = jax.tree.flatten(start)

    def step(carry: Any, entry: Any) -> Any:
        leaves, values = carry
        results, new = once.run(*leaves, *jax.tree.leaves(entry), *values)
        after = [new.get(id(cell), old) for cell, old in zip(cells, values, strict=True)]
        return (results[: len(leaves)], after), results[len(leaves) :]

    carry = ([jnp.asarray(leaf) for leaf in carry_leaves], [_present(cell) for cell in cells])
    (last, after), stacked = jax.lax.scan(step, carry, entries, length=length)
    _write_back(once, cells, after)
    _, results = jax.tree.unflatten(once.tree, [*last, *stacked])
    return jax.tree.unflatten(carry_tree, last), results


def _first(entries: Any) -> jax.Array:
    """Return the first entry, or if there is none something of its shape and type."""
    array = jnp.asarray(entries)
    return array[0] if array.shape[0] != 0 else jnp.zeros(array.shape[1:], array.dtype)


def _write_back(body: _Traced, cells: Sequence[Cell], values: Sequence[Any]) -> None:
    merges = {id(cell): merge for cell, merge in body.merges}
    for cell, value in zip(cells, values, strict=True):
        write(cell, value, merge=merges.get(id(cell), Merge.SAME))
