"""Replica programs over cells: what each replica reads, and what its writes become."""

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from tfdist_jax._autodiff._tape import observe_read
from tfdist_jax._errors import UsedAfterUpdateError
from tfdist_jax._internals import current_trace, releasing_failed_trace, set_current_trace
from tfdist_jax._replica import is_per_replica
from tfdist_jax._sharding._collectives import fused_sum, map_replicas
from tfdist_jax._sharding._mesh import DATA, num_replicas
from tfdist_jax._sharding._values import PerReplica
from tfdist_jax._stateful._capture import CaptureScope
from tfdist_jax._stateful._merging import Part, contribution, merged
from tfdist_jax._stateful._postponed_updates import PostponedUpdates
from tfdist_jax._stateful._state import Cell, Merge, StateScope, current_scope, entering

AddUp = Callable[[list[jax.Array]], list[Any]]


@final
@jax.tree_util.register_pytree_node_class
class Replicated:
    """An array that is the same one on all replicas, among the results of a replica or (of each) of all of them."""

    def __init__(self, value: Any) -> None:
        """Hold `value`."""
        self.value = value

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        """Return the array."""
        return (self.value,), None

    @classmethod
    def tree_unflatten(cls, nothing: None, leaves: tuple[Any]) -> "Replicated":
        """Hold it again."""
        return cls(*leaves)


def is_replicated(leaf: Any) -> bool:
    """Whether a result is the same array on all replicas."""
    return isinstance(leaf, Replicated)


@final
class ReplicaScope(StateScope):
    """One replica's view of the cells: shared ones through the surrounding program, its own ones as operands."""

    def __init__(
        self,
        outer: StateScope,
        own_part: Callable[[jax.Array], jax.Array] = lambda array: array,
        postponed: PostponedUpdates | None = None,
    ) -> None:
        """Read cells that this replica has not written through `outer`, from where the replicas are started.

        `own_part` gives the replica's entry of what `outer` has of a cell with a value for each, which `give` has not named: one
        that was made while the replicas run. `postponed` takes the updates that may run behind the replicas, if any may.
        """
        self._outer, self._own_part = outer, own_part
        self._postponed = postponed or PostponedUpdates(are_taken=False)
        self._around = current_trace()
        self._values: dict[int, jax.Array] = {}
        self._writes: dict[int, tuple[Cell, Merge]] = {}
        self._merged: dict[int, jax.Array] = {}

    @property
    def is_traced(self) -> bool:
        """Whether the replica is being traced."""
        return self._outer.is_traced

    def after_run(self, check: Callable[[], None]) -> bool:
        """Let the surrounding program call `check`."""
        return self._outer.after_run(check)

    def present_value(self, array: jax.Array) -> Any:
        """Return the value if it does not depend on the replica's own."""
        return self._outer.present_value(array)

    def give(self, cell: Cell, array: jax.Array) -> None:
        """Let this replica start with `array` in `cell`, one of its own."""
        self._values[id(cell)] = array

    def read(self, cell: Cell) -> jax.Array:
        """Return this replica's value."""
        self._postponed.must_not_change(cell)
        if id(cell) in self._values:
            return self._values[id(cell)]
        with set_current_trace(self._around):  # A tape around the replicas sees what they read.
            value = observe_read(cell, self._outer.read(cell), trainable=cell.trainable)
        return self._own_part(value) if cell.storage.per_replica else value

    def write(self, cell: Cell, array: jax.Array, merge: Merge) -> None:
        """Change this replica's value; how the replicas' values meet is settled when all have run."""
        self._postponed.note_write(cell)
        earlier = self._writes.get(id(cell), (cell, Merge.SAME))[1]
        self._writes[id(cell)] = (cell, max(earlier, merge, key=lambda m: m.value))
        self._values[id(cell)] = array

    def can_postpone(self, cells: Sequence[Cell]) -> bool:
        """Whether an update of cells may, and should, run behind the replicas."""
        storages = [cell.storage for cell in cells]
        should = any(storage.updates_apart for storage in storages)
        if should and not self._postponed.are_taken and not self._postponed.is_told:
            warnings.warn(
                "A step whose replicas' batches differ in size, or that is not compiled, needs all of the optimizer's state on each device "
                "while it runs. Its results are the same.",
                stacklevel=2,
            )
        return self._postponed.are_taken and should and not any(storage.per_replica for storage in storages)

    def postpone(self, apply: Callable[[Any], object], operands: Any, cells: Sequence[Cell]) -> None:
        """Let an update run behind the replicas, as `PostponedUpdates.add` says, where `can_postpone` is true."""
        self._postponed.add(apply, operands, cells)

    def writes(self) -> list[tuple[Cell, jax.Array, Merge]]:
        """Return the written cells with this replica's value and how it is to be merged."""
        return [(cell, self._values[key], merge) for key, (cell, merge) in self._writes.items()]

    def merge(self, part: Part, add_up: AddUp, others: Sequence[jax.Array] = ()) -> list[jax.Array]:
        """Make equal on all replicas what they have written to shared cells so far, in one reduction.

        Args:
            part: This replica's.
            add_up: Adds arrays up over the replicas; called once, by all of them or by none.
            others: Arrays to be added up beside the cells' values.

        Returns:
            The sums of `others`.
        """
        differing = [
            write for write in self.writes() if not write[0].storage.per_replica and write[2] is not Merge.SAME
        ]
        old = [self._merged[id(cell)] if id(cell) in self._merged else self._outer.read(cell) for cell, *_ in differing]
        amounts = [
            contribution(value, before, merge, part) for (_, value, merge), before in zip(differing, old, strict=True)
        ]
        sums = add_up([*amounts, *others]) if amounts or others else []
        for (cell, _, merge), before, total in zip(differing, old, sums[: len(differing)], strict=True):
            self._values[id(cell)] = self._merged[id(cell)] = merged(total, before, merge, part)
            self._writes[id(cell)] = (cell, Merge.SAME)
        return sums[len(differing) :]


def run_with_cells(
    fn: Callable[..., Any],
    args: Any,
    mesh: Mesh,
    *,
    own_cells: Sequence[Cell],
    counts: tuple[int, ...] | None = None,
) -> Any:
    """Run `fn(*args)` on every replica of `mesh` inside a captured program.

    Args:
        fn: Reads and writes cells; collectives over the axis name `DATA` and whatever its context offers.
        args: Tuple of pytrees whose `PerReplica` leaves (even ones) are split over the replicas.
        mesh: The replicas' mesh.
        own_cells: The per-replica cells that `fn` may touch.
        counts: How much each replica counts in means; all alike if None.

    Returns:
        What `fn` returns, each array as a `PerReplica`; what is `Replicated` is one array.
    """
    replicas = _Replicas(fn, args, mesh, own_cells, counts or (1,) * num_replicas(mesh))
    try:
        return replicas.run(PostponedUpdates(are_taken=True))
    except UsedAfterUpdateError as error:
        warnings.warn(
            f"A step needs all of the optimizer's state on each device while it runs: {error}. Its results are the same. Let each step "
            "use the variables before it applies gradients, in several calls of `strategy.run` if need be.",
            stacklevel=2,
        )
        return replicas.run(PostponedUpdates(are_taken=False, is_told=True))


@final
@dataclasses.dataclass(frozen=True)
class _Replicas:
    """A function that runs on each replica; the attributes are the arguments of `run_with_cells`."""

    fn: Callable[..., Any]
    args: Any
    mesh: Mesh
    own_cells: Sequence[Cell]
    counts: tuple[int, ...]

    def run(self, postponed: PostponedUpdates) -> Any:
        """Return the results; `postponed` takes the updates that may run behind the replicas, and they are run."""
        scope = _program_scope(self.mesh)
        leaves, tree = jax.tree.flatten(self.args, is_leaf=is_per_replica)
        split = [leaf.data for leaf in leaves if isinstance(leaf, PerReplica)]
        found: dict[str, Any] = {}
        replica = ReplicaScope(scope, lambda array: array[jax.lax.axis_index(DATA)], postponed)

        def body(split: list[jax.Array], own_values: list[jax.Array]) -> Any:
            for cell, value in zip(self.own_cells, own_values, strict=True):
                replica.give(cell, value[0])
            mine = iter(split)
            entries = [_own_entry(leaf, mine) for leaf in leaves]
            with releasing_failed_trace(), entering(replica):
                results, found["tree"] = jax.tree.flatten(
                    self.fn(*jax.tree.unflatten(tree, entries)), is_leaf=is_replicated
                )
            replica.merge(Part(jax.lax.axis_index(DATA), self.counts), fused_sum)
            writes = replica.writes()
            found["is_same"] = [is_replicated(result) for result in results]
            found["shared"] = [cell for cell, *_ in writes if not cell.storage.per_replica]
            found["own"] = [cell for cell, *_ in writes if cell.storage.per_replica]
            same = [result.value for result in results if is_replicated(result)]
            each = [result for result in results if not is_replicated(result)]
            same += [value for cell, value, _ in writes if not cell.storage.per_replica]
            each += [value for cell, value, _ in writes if cell.storage.per_replica]
            return [jnp.asarray(value)[None] for value in each], same, *postponed.operands()

        each, whole = PartitionSpec(DATA), PartitionSpec()
        # One jit around it, so that a tape outside sees one operation and not the inside of the replica program.
        program = jax.jit(map_replicas(body, self.mesh, in_specs=(each, each), out_specs=(each, whole, each, whole)))
        *outputs, parts, operands = program(split, [scope.read(cell) for cell in self.own_cells])
        each, same = map(iter, outputs)
        results = [
            Replicated(next(same)) if is_same else PerReplica(next(each), num_replicas(self.mesh))
            for is_same in found["is_same"]
        ]
        written = [*zip(found["shared"], same, strict=True), *zip(found["own"], each, strict=True)]

        def write(moment: int) -> None:
            for cell, value in written:
                if postponed.moment_of(cell) == moment:
                    scope.write(cell, value, Merge.SAME)

        postponed.run(scope, parts, operands, write)
        return jax.tree.unflatten(found["tree"], results)


def _own_entry(leaf: Any, split: Any) -> Any:
    if not isinstance(leaf, PerReplica):
        return leaf
    block = next(split)
    return block if leaf.is_rows else block[0]


def _program_scope(mesh: Mesh) -> StateScope:
    """Return the scope of the surrounding program, which from now on belongs to `mesh`."""
    scope = current_scope()
    if scope is None:
        raise RuntimeError("Replicas with cells run inside a captured program; call them through `StatefulProgram`.")
    if isinstance(scope, CaptureScope):
        scope.belong_to(mesh)
    return scope
