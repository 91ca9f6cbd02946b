"""Compile functions that read and write cells: each touched cell becomes an input, each written one an output.

A cell is made an input when it is first read: the read leaves one equation in the outermost trace, which becomes
an input of the finished program. Passing every live cell instead would cost a second of tracing with a few
thousand variables.
"""

import contextlib
import dataclasses
import functools
import itertools
import operator
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray, Tracer
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.sharding import Mesh, NamedSharding

from tfdist_jax._autodiff._custom_pullback import reread
from tfdist_jax._autodiff._nested_programs import has_float_loop
from tfdist_jax._autodiff._tape import is_recording, observe_read
from tfdist_jax._autodiff._tape_trace import unseen_by_tapes
from tfdist_jax._device_scope import Device
from tfdist_jax._errors import NotCompilableError
from tfdist_jax._garbage_collection import pausing_garbage_collection
from tfdist_jax._internals import (
    current_trace,
    known_value,
    releasing_failed_trace,
    set_current_trace,
    setting,
    trace_of,
    tracing_constants,
)
from tfdist_jax._program import BEFORE_RUN, CompiledStep
from tfdist_jax._runtime import reuses_memory
from tfdist_jax._sharding._placement import local, put, replicated_sharding, spans_processes
from tfdist_jax._sharding._values import PerReplica
from tfdist_jax._signals import deferring_signals
from tfdist_jax._stateful._staged_step import StagedStep
from tfdist_jax._stateful._stages import Stages, cut
from tfdist_jax._stateful._state import CELLS, Cell, Merge, StateScope, entering, load, read_now, store
from tfdist_jax._thread_state import restoring_thread_state

_sharding_of = operator.attrgetter("sharding")
_read_cell = Primitive("read_cell")
_read_cell.def_abstract_eval(lambda *, index, aval: aval)


@final
class CaptureScope(StateScope):
    """Notes which cells a function touches while it is traced.

    Attributes:
        cells: The touched cells, in the order of their first touch.
        mesh: The mesh of the replica programs inside, if there are any.
        checks: What to call when the program has run.
        is_over: Whether the function has been traced, or has failed.
    """

    is_over = False

    def __init__(
        self, inputs: Sequence[tuple[Tracer, jax.Array]] = (), *, around: "CaptureScope | None" = None
    ) -> None:
        """Start with no cell known; the trace that is current now is the root of the program.

        Args:
            inputs: The program's arguments, and arrays that they are traced for, where there are any.
            around: The program of which this is an update, which uses what has been computed there.
        """
        self._inputs = inputs
        self._around = around
        self.updates: dict[str, Captured] = {}
        self.cells: list[Cell] = []
        self.mesh: Mesh | None = None
        self.checks: list[Callable[[], None]] = []
        self._root = current_trace()
        self.traces = [self._root] if around is None else [self._root, *around.traces]
        self._values: dict[int, jax.Array] = {}
        self._earlier: dict[int, list[jax.Array]] = {}
        self._written: set[int] = set()

    @property
    def is_update(self) -> bool:
        """Whether it stands for an update in a program."""
        return self._around is not None

    def after_run(self, check: Callable[[], None]) -> bool:
        """Let `check` be called each time when the program has run."""
        self.checks.append(check)
        return True

    def add_update(self, update: "Captured") -> Any:
        """Make a traced change of cells a call in this program, which `updates` knows by its name; return its results."""
        jaxpr, consts = update.jaxpr.jaxpr, update.jaxpr.consts
        whole = jaxpr.replace(
            constvars=[],
            invars=[*jaxpr.constvars, *jaxpr.invars],
            debug_info=jaxpr.debug_info.with_unknown_names(),
        )
        program = jaxpr_as_fun(ClosedJaxpr(whole, ()))

        def call(*arrays: Any) -> list[Any]:
            return program(*arrays)

        call.__name__ = f"update_cells_{len(self.updates)}"
        self.updates[call.__name__] = update
        self.checks += update.checks
        with unseen_by_tapes():
            outputs = jax.jit(call)(*consts, *map(self._present, update.cells))
        split = len(outputs) - len(update.written)
        for cell, value in zip(update.written, outputs[split:], strict=True):
            self.write(cell, value, Merge.SAME)
        return jax.tree.unflatten(update.out_tree, outputs[:split])

    def present_value(self, array: jax.Array) -> Any:
        """Return what a traced array would be, for replica 0, if the program ran now on the arrays that it is traced for."""
        return known_value(array, self._inputs, lambda index: read_now(self.cells[index]), replica=0)

    def belong_to(self, mesh: Mesh) -> None:
        """Note the mesh of replicas inside.

        Raises:
            NotCompilableError: If there are replicas on other devices already.
        """
        if self.mesh is not None and self.mesh != mesh:
            raise NotCompilableError("A program has replicas on one set of devices only.")
        self.mesh = mesh

    def read(self, cell: Cell) -> jax.Array:
        """Return the cell's value in the program; on first touch, an input of the program."""
        if cell.storage.is_given and self._around is not None:
            return self._around.read(cell)  # A run is given it before any update.
        value, earlier = self._present(cell), self._earlier.get(id(cell))
        if not earlier:
            return value
        with set_current_trace(self._root):
            return reread(value, earlier[0])

    def _present(self, cell: Cell) -> jax.Array:
        if id(cell) not in self._values:
            with set_current_trace(self._root):
                value = read_as_input(len(self.cells), cell.storage.example(cell.stored))
            self._values[id(cell)] = value
            self.cells.append(cell)
        return self._values[id(cell)]

    def values(self, cell: Cell) -> list[jax.Array]:
        """Return the values that the cell has had in the program."""
        return [*self._earlier.get(id(cell), []), self._present(cell)]

    def write(self, cell: Cell, array: jax.Array, merge: Merge) -> None:
        """Make `array` the cell's value; `merge` does not matter outside of replicas."""
        if isinstance(array, Tracer) and trace_of(array) not in self.traces:
            raise NotImplementedError(
                "A variable was assigned inside the body of a conditional, a loop or a vectorized function, whose "
                "values do not outlive it. Return the new value from the body and assign it afterwards."
            )
        self._earlier.setdefault(id(cell), []).append(self._present(cell))
        self._values[id(cell)] = array
        self._written.add(id(cell))

    def writes(self) -> list[tuple[Cell, jax.Array, Merge]]:
        """Return the written cells with their last values."""
        return [(cell, self._values[id(cell)], Merge.SAME) for cell in self.cells if id(cell) in self._written]


def _type_of(array: jax.Array) -> ShapedArray:
    """Return an array's type without its mesh: inside replicas it would contradict theirs."""
    return ShapedArray(array.shape, array.dtype, weak_type=getattr(array, "weak_type", False))  # Keys have none.


@final
@dataclasses.dataclass(frozen=True)
class Captured:
    """A traced function whose cells are explicit.

    Attributes:
        jaxpr: Takes the arguments' arrays, then those of `given`, then the values of `cells`; gives the results' arrays, then the
            new values of `written`.
        given: The cells that stand for further arguments.
        cells: Every other cell that the program reads.
        written: The cells it gives a new value.
        out_tree: Structure of the function's result.
        mesh: The mesh of the replica programs inside, or None.
        checks: What to call when the program has run; they may raise.
        updates: The changes of cells that are calls in it, by the names of these.
    """

    jaxpr: ClosedJaxpr
    given: tuple[Cell, ...]
    cells: tuple[Cell, ...]
    written: tuple[Cell, ...]
    out_tree: Any
    mesh: Mesh | None
    checks: tuple[Callable[[], None], ...]
    updates: dict[str, "Captured"]


def capture(fn: Callable[..., Any], arrays: Sequence[Any], *, around: CaptureScope | None = None) -> Captured:
    """Trace `fn(*arrays)` once, with the cells it touches as inputs and outputs; as an update of the program `around`, if any."""
    found: dict[str, Any] = {}
    known = [None if isinstance(array, jax.ShapeDtypeStruct) else array for array in arrays]

    def pure(*arrays: jax.Array) -> Any:
        pairs = zip(arrays, known, strict=True)
        scope = CaptureScope(
            [(tracer, array) for tracer, array in pairs if isinstance(tracer, Tracer) and array is not None],
            around=around,
        )
        try:
            with releasing_failed_trace(), entering(scope):
                results, found["tree"] = jax.tree.flatten(fn(*arrays))
        finally:
            scope.is_over = True
        written = scope.writes()
        found.update(cells=scope.cells, mesh=scope.mesh, checks=tuple(scope.checks), updates=scope.updates)
        found["written"] = tuple(cell for cell, *_ in written)
        return results, [array for _, array, _ in written]

    # A `ShapeDtypeStruct` of 64 bits would be traced as one of 32.
    types = [ShapedArray(x.shape, x.dtype) if isinstance(x, jax.ShapeDtypeStruct) else x for x in arrays]
    with restoring_thread_state(), pausing_garbage_collection():
        traced = jax.make_jaxpr(pure)(*types)
    is_given = lambda index: found["cells"][index].storage.is_given
    jaxpr, indices = reads_to_inputs(traced, order=lambda index: not is_given(index))
    given, cells = (tuple(found["cells"][i] for i in indices if is_given(i) is wanted) for wanted in (True, False))
    kept = {name: found[name] for name in ("mesh", "checks", "updates")}
    return Captured(jaxpr, given, cells, found["written"], found["tree"], **kept)


def read_as_input(index: int, array: jax.Array) -> jax.Array:
    """Return what stands for an array in the current trace, of which `reads_to_inputs` makes an input of the program."""
    with tracing_constants():
        return _read_cell.bind(index=index, aval=_type_of(array))


def reads_to_inputs(
    traced: ClosedJaxpr, *, order: Callable[[int], Any] = lambda index: 0
) -> tuple[ClosedJaxpr, list[int]]:
    """Return a program that takes what it reads as inputs, behind its others, and the indices of these reads, sorted by `order`."""
    inner = traced.jaxpr
    reads = [eqn for eqn in inner.eqns if eqn.primitive is _read_cell]
    reads.sort(key=lambda eqn: order(eqn.params["index"]))
    inputs = [*inner.invars, *(eqn.outvars[0] for eqn in reads)]
    rest = [eqn for eqn in inner.eqns if eqn.primitive is not _read_cell]
    # The names of the arguments no longer match the inputs.
    info = inner.debug_info.with_unknown_names()
    changed = inner.replace(invars=inputs, eqns=rest, debug_info=info)
    return ClosedJaxpr(changed, traced.consts), [eqn.params["index"] for eqn in reads]


def _count_references(arrays: list[Any]) -> list[int]:
    # Bound to the name of a loop, each array would have a reference more.
    return list(map(sys.getrefcount, arrays))


# References to an array that only its cell holds, beside the list of inputs: memory of others must not be given away.
_OWN_REFERENCES = 1 + _count_references([object()])[0]


def copy_what_others_hold(arrays: list[Any]) -> None:
    """Put copies in the places of those of the arrays in cells that somebody else holds, too: then the memory of all may be given away."""
    for i, count in enumerate(_count_references(arrays)):
        if count > _OWN_REFERENCES:
            arrays[i] = jnp.copy(arrays[i])


OUTCOME_CHECKS: list[Callable[[Sequence[jax.Array]], None]] = []
"""What the results of each program, and the values that it writes, have to pass before they count; a check raises."""


@final
class _NamedStep:
    """A step whose state is a dict of what its cells hold, by their names."""

    def __init__(
        self, step: CompiledStep | StagedStep, name: str, written: Sequence[Cell], read: Sequence[Cell]
    ) -> None:
        self._step, self._written, self._read = step, written, read
        self.__name__ = name

    @property
    def homes(self) -> dict[str, tuple[int, int]]:
        """How many bytes the step takes from each place where cells are that no device keeps between steps, and brings back."""
        found: dict[str, tuple[int, int]] = {}
        for cells, is_written in ((self._written, True), (self._read, False)):
            for cell in cells:
                storage = cell.storage
                if storage.holds_arrays or storage.place_name is None:
                    continue
                held = storage.example(cell.stored)
                size = held.size * held.dtype.itemsize
                taken, brought = found.get(storage.place_name, (0, 0))
                found[storage.place_name] = taken + size, brought + size * is_written
        return found

    def lower(self, state: dict[str, Any], only_read: list[Any], arrays: list[Any]) -> Any:
        """Lower the step without running it."""
        return self._step.lower(list(state.values()), only_read, arrays)


@final
class StatefulProgram:
    """A compiled function of arrays that reads and writes cells; written cells' memory is reused (`_runtime.reuses_memory`).

    Attributes:
        is_whole: Whether it does all that the function does: not where somebody has to do something before each run.
        takes_held_arrays: Whether arguments may be arrays that a worker's process holds.
    """

    is_whole, takes_held_arrays = True, False

    def __init__(
        self,
        captured: Captured,
        arrays: Sequence[Any],
        *,
        name: str,
        layouts: Sequence[jax.sharding.Sharding] | None = None,
    ) -> None:
        """Prepare a traced function.

        Args:
            captured: The function.
            arrays: Arrays, or `jax.ShapeDtypeStruct`, like those that it will be called with.
            name: What it is called in messages.
            layouts: How the program takes each array, so that devices get only their parts of host arrays; as they come if None.
        """
        self.captured = captured
        written = {id(cell) for cell in self.captured.written}
        self._written = self.captured.written
        self._only_read = tuple(cell for cell in self.captured.cells if id(cell) not in written)
        self._hold_arrays = all(cell.storage.holds_arrays for cell in self.captured.cells)
        self.mesh = self.captured.mesh or _widest_mesh(list(map(load, self.captured.cells)), arrays)
        self._whole = None if self.mesh is None else replicated_sharding(self.mesh)
        self._is_shared = self.mesh is not None and spans_processes(self.mesh)
        stages = self._cut()
        if stages is not None:
            self._hold_arrays = False  # A new value goes to where its cell keeps it.
        state = list(map(self._load, self._written))
        # The same objects as in other programs make each step's look at where arrays are short.
        places = map(_sharding_of, itertools.chain(state, map(self._load, self._only_read)))
        self._places = [self._whole if sharding == self._whole else sharding for sharding in places]
        new = [None if _is_free(array) else place for array, place in zip(state, self._places, strict=False)]
        options = {} if layouts is None else {"in_shardings": (None, None, list(layouts))}
        # If a check fails, the old values stay.
        donate = reuses_memory(self.mesh, state) and not self.captured.checks
        if stages is None:
            self._step = CompiledStep(self._apply, self.mesh, donate=donate, layout=new, name=name, **options)
        else:
            self._step = self._make_staged(stages, name)
        self._checking = threading.RLock()
        self._is_settled = True
        # A step of a training changes what tapes watch.
        self._tell = BEFORE_RUN.get() if any(cell.trainable for cell in self._written) else None
        self._named = _NamedStep(self._step, name, self._written, self._only_read)

    def _cut(self) -> Stages | None:
        """Return the program in stages, if parts of it are to run on several devices of which none are replicas'."""
        if self.mesh is not None:
            return None
        return cut(self.captured.jaxpr, [cell.storage.device for cell in self.captured.cells], _home())

    def _make_staged(self, stages: Stages, name: str) -> StagedStep:
        split = len(stages.inputs) - len(self.captured.cells)
        inputs = {id(cell): variable for cell, variable in zip(self.captured.cells, stages.inputs[split:], strict=True)}
        written, only_read = ([inputs[id(cell)] for cell in cells] for cells in (self._written, self._only_read))
        places = [cell.storage.device or stages.home for cell in self._written]
        return StagedStep(self._apply, stages, [written, only_read, stages.inputs[:split]], places, name=name)

    def __call__(self, arrays: Sequence[jax.Array | np.ndarray]) -> Any:
        """Run the program on `arrays` and the cells' present values."""
        if self._tell is not None:
            self._tell(self._named, self.mesh, self._named_inputs(arrays))
        if OUTCOME_CHECKS and setting("jax_debug_nans"):
            with jax.debug_nans(False):  # JAX's check would come first, or not at all where memory is given away.
                return self(arrays)
        keep = is_recording()
        if not (self._step.is_compiled or keep):
            self._step.compile(*self._inputs(arrays, is_observed=False))
        if self.captured.checks or OUTCOME_CHECKS:
            results = self._run_checked(arrays)
        else:
            with self._step.turn(), CELLS, deferring_signals():
                values, results = self._step(*self._inputs(arrays, is_observed=keep), keep=keep)
                self._store(values)
        self._step.wait()
        results = jax.tree.unflatten(self.captured.out_tree, results)
        return _for_this_process(results) if self._is_shared else results

    def _run_checked(self, arrays: Sequence[jax.Array | np.ndarray]) -> list[Any]:
        """Run the program; cells get their new values when its checks have passed, and keep the old ones if one fails."""
        with self._checking:
            if not self._is_settled:
                self._settle()
            self._is_settled = False
            while True:
                # JAX would make a RuntimeError of an exception in what the program calls in this thread.
                with self._step.turn(), CELLS, deferring_signals():
                    inputs = self._inputs(arrays, is_observed=is_recording())
                    before = self._held()
                    values, results = self._step(*inputs, keep=True)
                # Without the cells: what the program calls on the host may read them.
                jax.block_until_ready((results, values))
                jax.effects_barrier()
                for check in self.captured.checks:
                    check()
                for check_outcome in OUTCOME_CHECKS:
                    check_outcome([*results, *values])
                with CELLS, deferring_signals():
                    if all(map(operator.is_, before, self._held())):
                        self._store(values)
                        self._is_settled = True
                        return results

    def _settle(self) -> None:
        """Let what the checks have heard of a run that an exception has ended be of no concern to the next one."""
        jax.effects_barrier()
        for check in self.captured.checks:
            with contextlib.suppress(Exception):
                check()
        self._is_settled = True

    def _held(self) -> list[Any]:
        return [cell.stored for cell in self.captured.cells]

    def _store(self, values: Sequence[jax.Array]) -> None:
        if self._hold_arrays:
            for cell, value in zip(self._written, values, strict=True):
                cell.stored = value
        else:
            for cell, value in zip(self._written, values, strict=True):
                store(cell, value)

    @functools.cached_property
    def has_float_loop(self) -> bool:
        """Whether the program has a loop that a tape cannot follow: JAX has no reverse mode for `while`."""
        return has_float_loop(self.captured.jaxpr)

    def lower(self, arrays: Sequence[jax.Array | np.ndarray]) -> Any:
        """Lower the program without running it, as `jax.jit(fn).lower` does."""
        return self._step.lower(*self._inputs(arrays, is_observed=is_recording()))

    def _named_inputs(self, arrays: Sequence[jax.Array | np.ndarray]) -> tuple[dict[str, Any], list[Any], list[Any]]:
        """Return what the program takes, written cells by name."""
        written, only_read, rest = self._inputs(arrays, is_observed=False)
        named: dict[str, Any] = {}
        for cell, array in zip(self._written, written, strict=True):
            name = getattr(cell, "path", None) or getattr(cell, "name", "")
            named[f"{name} ({len(named)})" if name in named else name] = array
        return named, only_read, rest

    def _inputs(
        self, arrays: Sequence[jax.Array | np.ndarray], *, is_observed: bool
    ) -> tuple[list[Any], list[Any], list[Any]]:
        if self._whole is not None:
            arrays = [_replicate(array, self._whole) for array in arrays]
        with CELLS:  # Another thread's program would give away what is copied or moved here.
            written, only_read = self._cell_inputs(is_observed)
        return written, only_read, list(arrays)

    def _cell_inputs(self, is_observed: bool) -> tuple[list[Any], list[Any]]:
        written, only_read = self._stored()
        if is_observed:
            observe = lambda cell, array: observe_read(cell, array, trainable=cell.trainable)
            return list(map(observe, self._written, written)), list(map(observe, self._only_read, only_read))
        if self._step.gives_away:
            copy_what_others_hold(written)
        return written, only_read

    def _stored(self) -> tuple[list[Any], list[Any]]:
        """Return what the cells hold, on the program's devices."""
        if self._hold_arrays:
            written, only_read = [cell.stored for cell in self._written], [cell.stored for cell in self._only_read]
            found = map(_sharding_of, itertools.chain(written, only_read))
            if self._whole is None or all(map(operator.is_, found, self._places)):
                return written, only_read
            del written, only_read  # They would be references to memory that may be given away.
        return list(map(self._load, self._written)), list(map(self._load, self._only_read))

    def _load(self, cell: Cell) -> jax.Array:
        """Return a cell's array on the program's devices, where one that its cell holds stays."""
        with CELLS:
            array = load(cell)
            if self._whole is None:
                return array
            placed = _replicate(array, self._whole)
            if placed is not array and cell.storage.holds_arrays:
                cell.stored = placed
            return placed

    def _apply(self, written: list[Any], only_read: list[Any], arrays: list[Any]) -> Any:
        values = {id(cell): value for cell, value in zip(self._written, written, strict=True)}
        values |= {id(cell): value for cell, value in zip(self._only_read, only_read, strict=True)}
        inputs = [values[id(cell)] for cell in self.captured.cells]
        outputs = jaxpr_as_fun(self.captured.jaxpr)(*arrays, *inputs)
        split = len(outputs) - len(self._written)
        return outputs[split:], outputs[:split]


def _for_this_process(results: Any) -> Any:
    """Let code outside of programs compute on results: what is whole on each device becomes this process's own."""
    is_split = lambda leaf: isinstance(leaf, PerReplica) and not leaf.is_uneven
    return jax.tree.map(lambda leaf: leaf if is_split(leaf) else local(leaf), results, is_leaf=is_split)


def _is_free(array: jax.Array) -> bool:
    """Whether a cell's new value goes where JAX likes, which leaves it free to meet a mesh's arrays."""
    return not array.committed and array.devices() == {_home()}


def _home() -> Device:
    """Return the device on which JAX puts what is bound to none."""
    return next(iter(jnp.zeros(()).devices()))


def _replicate(array: Any, whole: NamedSharding) -> Any:
    """Copy an array that lies on other devices to every device of the mesh."""
    sharding = getattr(array, "sharding", None)
    if sharding is None or sharding is whole or isinstance(array, Tracer):
        return array
    if sharding.device_set == whole.device_set:
        return array
    return put(array, whole)


def _widest_mesh(*groups: Sequence[Any]) -> Mesh | None:
    """Return the mesh of the arrays that lie on the most devices, or None if all lie on one."""
    shardings = [getattr(array, "sharding", None) for group in groups for array in group]
    named = (s.mesh for s in shardings if isinstance(s, NamedSharding))
    meshes = [mesh for mesh in named if isinstance(mesh, Mesh) and mesh.size > 1]
    return max(meshes, key=lambda mesh: mesh.size, default=None)
