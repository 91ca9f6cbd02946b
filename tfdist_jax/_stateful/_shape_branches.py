"""Replicas whose arguments differ in shape as one program: each takes the branch for its own shapes.

XLA compiles a branch for each set of shapes, of which a batch has two, and not for each replica; and each device computes
its own rows only. Replicas in different branches would wait for each other: they must not communicate inside.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from tfdist_jax._errors import DiffersByReplicaError
from tfdist_jax._replica import is_per_replica
from tfdist_jax._sharding._mesh import DATA, num_replicas
from tfdist_jax._sharding._values import PerReplica
from tfdist_jax._stateful._control_flow import BranchesDifferError, branch_padded, pad_to
from tfdist_jax._stateful._replica_state import run_with_cells
from tfdist_jax._stateful._state import Cell

Shapes = tuple[tuple[int, ...], ...]


def run_by_shape(
    fn: Callable[..., Any], args: Any, mesh: Mesh, *, own_cells: Sequence[Cell], counts: tuple[int, ...]
) -> Any:
    """Run `fn(*args)` on every replica of `mesh` inside a captured program, as `run_with_cells` does, with uneven arguments.

    Args:
        fn: Reads and writes cells; it must not communicate. Traced once for each distinct set of its arguments' shapes.
        args: Tuple of pytrees whose `PerReplica` leaves are split over the replicas.
        mesh: The replicas' mesh.
        own_cells: The per-replica cells that `fn` may touch.
        counts: How much each replica counts in means.

    Returns:
        What `fn` returns, each array as a `PerReplica`, uneven where the shapes differ.

    Raises:
        DiffersByReplicaError: If arguments or results differ in more than the lengths of arrays, or `fn` communicates.
    """
    leaves, tree = jax.tree.flatten(args, is_leaf=is_per_replica)
    uneven = [leaf.values for leaf in leaves if _is_uneven(leaf)]
    if not all(_differ_in_lengths(values) for values in uneven):
        raise DiffersByReplicaError("it is given values of different types.")
    kinds = [tuple(values[i].shape for values in uneven) for i in range(num_replicas(mesh))]
    distinct = sorted(set(kinds))
    numbers = [distinct.index(kind) for kind in kinds]
    found: list[Any] = []

    def replica(*args: Any) -> Any:
        padded = tree.flatten_up_to(args)

        def branch(shapes: Shapes) -> Callable[[], Any]:
            given = iter(shapes)
            own = [
                _cut(array, next(given)) if _is_uneven(leaf) else array
                for leaf, array in zip(leaves, padded, strict=True)
            ]
            return lambda: fn(*tree.unflatten(own))

        number = jnp.array(numbers)[jax.lax.axis_index(DATA)]
        try:
            results, found[:] = branch_padded(number, [branch(shapes) for shapes in distinct], DATA)
        except BranchesDifferError as error:
            raise DiffersByReplicaError(f"its batches differ in size. {error}") from error
        return results

    even = [_stack_padded(leaf.values) if _is_uneven(leaf) else leaf for leaf in leaves]
    results = run_with_cells(replica, tree.unflatten(even), mesh, own_cells=own_cells, counts=counts)
    values, tree = jax.tree.flatten(results, is_leaf=is_per_replica)
    by_leaf = zip(*(found[number] for number in numbers), strict=True)
    return tree.unflatten([_restore(value, shapes) for value, shapes in zip(values, by_leaf, strict=True)])


def _is_uneven(leaf: Any) -> bool:
    return isinstance(leaf, PerReplica) and leaf.is_uneven


def _differ_in_lengths(values: Sequence[Any]) -> bool:
    """Whether values are arrays of one type and number of dimensions."""
    return all(isinstance(value, jax.Array) for value in values) and len({(v.dtype, v.ndim) for v in values}) == 1


def _stack_padded(values: Sequence[jax.Array]) -> PerReplica:
    """Hold arrays of different lengths, filled up with zeros to the largest of them."""
    largest = tuple(map(max, *(value.shape for value in values)))
    return PerReplica(jnp.stack([pad_to(value, largest) for value in values]), len(values))


def _cut(array: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return array[tuple(map(slice, shape))]


def _restore(value: Any, shapes: Shapes) -> Any:
    """Cut what has been filled up out of a result, given its shape on each replica."""
    if len(set(shapes)) == 1:
        return value
    return PerReplica.uneven([_cut(value.data[i], shape) for i, shape in enumerate(shapes)])
