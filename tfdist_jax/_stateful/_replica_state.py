"""Replica programs over cells: what each replica reads, and what its writes become."""

from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from tfdist_jax._autodiff._tape import observe_read
from tfdist_jax._internals import current_trace, releasing_failed_trace, set_current_trace
from tfdist_jax._replica import is_per_replica
from tfdist_jax._sharding._collectives import fused_sum, map_replicas
from tfdist_jax._sharding._mesh import DATA, num_replicas
from tfdist_jax._sharding._values import PerReplica
from tfdist_jax._stateful._capture import CaptureScope
from tfdist_jax._stateful._merging import Part, contribution, current_part, merged
from tfdist_jax._stateful._state import Cell, Merge, StateScope, current_scope, entering


@final
class ReplicaScope(StateScope):
    """One replica's view of the cells: shared ones through the surrounding program, its own ones as operands."""

    def __init__(self, outer: StateScope) -> None:
        """Read cells that this replica has not written through `outer`, from where the replicas are started."""
        self._outer = outer
        self._around = current_trace()
        self._values: dict[int, jax.Array] = {}
        self._writes: dict[int, tuple[Cell, Merge]] = {}

    @property
    def is_traced(self) -> bool:
        """Whether the replica is being traced."""
        return self._outer.is_traced

    def after_run(self, check: Callable[[], None]) -> bool:
        """Let the surrounding program call `check`."""
        return self._outer.after_run(check)

    def give(self, cell: Cell, array: jax.Array) -> None:
        """Let this replica start with `array` in `cell`, one of its own."""
        self._values[id(cell)] = array

    def read(self, cell: Cell) -> jax.Array:
        """Return this replica's value."""
        if id(cell) in self._values:
            return self._values[id(cell)]
        with set_current_trace(self._around):  # A tape around the replicas sees what they read.
            return observe_read(cell, self._outer.read(cell), trainable=cell.trainable)

    def write(self, cell: Cell, array: jax.Array, merge: Merge) -> None:
        """Change this replica's value; how the replicas' values meet is settled when all have run."""
        earlier = self._writes.get(id(cell), (cell, Merge.SAME))[1]
        self._writes[id(cell)] = (cell, max(earlier, merge, key=lambda m: m.value))
        self._values[id(cell)] = array

    def writes(self) -> list[tuple[Cell, jax.Array, Merge]]:
        """Return the written cells with this replica's value and how it is to be merged."""
        return [(cell, self._values[key], merge) for key, (cell, merge) in self._writes.items()]

    def merged(self, part: Part) -> list[tuple[Cell, jax.Array]]:
        """Return the shared cells' new values, equal on all replicas of a program for all of them, in one fused reduction."""
        shared = [write for write in self.writes() if not write[0].per_replica]
        old = [self._outer.read(cell) for cell, _, _ in shared]
        amounts = [
            None if merge is Merge.SAME else contribution(value, before, merge, part)
            for (_, value, merge), before in zip(shared, old, strict=True)
        ]
        return [
            (cell, value if total is None else merged(total, before, merge, part))
            for (cell, value, merge), before, total in zip(shared, old, fused_sum(amounts), strict=True)
        ]

    def own(self) -> list[tuple[Cell, jax.Array]]:
        """Return the per-replica cells that were written, with this replica's value."""
        return [(cell, value) for cell, value, _ in self.writes() if cell.per_replica]


def run_with_cells(fn: Callable[..., Any], args: Any, mesh: Mesh, *, own_cells: Sequence[Cell]) -> Any:
    """Run `fn(*args)` on every replica of `mesh` inside a captured program.

    Args:
        fn: Reads and writes cells; collectives over the axis name `DATA` and whatever its context offers.
        args: Tuple of pytrees whose `PerReplica` leaves (even ones) are split over the replicas.
        mesh: The replicas' mesh.
        own_cells: The per-replica cells that `fn` may touch.

    Returns:
        What `fn` returns, each array as a `PerReplica`.
    """
    scope = _program_scope(mesh)
    leaves, tree = jax.tree.flatten(args, is_leaf=is_per_replica)
    split = [leaf.data for leaf in leaves if isinstance(leaf, PerReplica)]
    written: dict[str, list[Cell]] = {}
    replica = ReplicaScope(scope)

    def body(split: list[jax.Array], own_values: list[jax.Array]) -> Any:
        for cell, value in zip(own_cells, own_values, strict=True):
            replica.give(cell, value[0])
        mine = iter(split)
        entries = [_own_entry(leaf, mine) for leaf in leaves]
        with releasing_failed_trace(), entering(replica):
            results = fn(*jax.tree.unflatten(tree, entries))
        shared, own = replica.merged(current_part(num_replicas(mesh))), replica.own()
        written.update(shared=[cell for cell, _ in shared], own=[cell for cell, _ in own])
        stacked = jax.tree.map(lambda result: jnp.asarray(result)[None], results)
        return stacked, [value for _, value in shared], [value[None] for _, value in own]

    each, whole = PartitionSpec(DATA), PartitionSpec()
    # One jit around it, so that a tape outside sees one operation and not the inside of the replica program.
    program = jax.jit(map_replicas(body, mesh, in_specs=(each, each), out_specs=(each, whole, each)))
    results, shared, own = program(split, [scope.read(cell) for cell in own_cells])
    for cell, value in zip([*written["shared"], *written["own"]], [*shared, *own], strict=True):
        scope.write(cell, value, Merge.SAME)
    return jax.tree.map(lambda result: PerReplica(result, num_replicas(mesh)), results)


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
