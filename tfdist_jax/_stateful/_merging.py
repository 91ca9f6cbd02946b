"""How the values that the replicas have written to one cell become one.

Each replica contributes an amount; the amounts are added up, in one program by an all-reduce, else one after the other; from
the sum follows the new value.
"""

import dataclasses
import functools
import operator
from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp

from tfdist_jax._replica import is_per_replica
from tfdist_jax._sharding._values import PerReplica
from tfdist_jax._stateful._state import Merge


@final
@dataclasses.dataclass(frozen=True)
class Part:
    """One replica's part of a step.

    Attributes:
        index: Which replica it is: a number, or in a program for all replicas a tracer.
        counts: How much each replica counts in a mean: its rows, or 1 if all count alike.
    """

    index: Any
    counts: tuple[int, ...]

    @property
    def count(self) -> Any:
        """How much this replica counts."""
        alike = len(set(self.counts)) == 1
        return self.counts[0] if alike else jnp.array(self.counts)[self.index]

    @property
    def total(self) -> int:
        """What the counts of all replicas add up to."""
        return sum(self.counts)


def row_counts(args: Any, num_replicas: int) -> tuple[int, ...]:
    """Return how much each replica counts in means over a step: the rows that it is given, where the replicas' numbers differ.

    Args:
        args: Pytree with `PerReplica` leaves. If these disagree about the rows, all replicas count alike.
        num_replicas: How many replicas there are.
    """
    batches = [leaf for leaf in jax.tree.leaves(args, is_leaf=is_per_replica) if is_per_replica(leaf)]
    found = {rows for rows in map(_rows, batches) if rows}
    counts = found.pop() if len(found) == 1 else ()
    return counts if any(counts) else (1,) * num_replicas


def _rows(batch: PerReplica) -> tuple[int, ...]:
    """Return how many rows each replica has of a batch; nothing for other values."""
    if not batch.is_uneven:
        return (batch.replica_types().shape[0],) * batch.num_replicas if batch.is_rows else ()
    is_batch = all(isinstance(value, jax.Array) and value.ndim for value in batch.data)
    return tuple(len(value) for value in batch.data) if is_batch else ()


def contribution(value: jax.Array, old: jax.Array, merge: Merge, part: Part) -> jax.Array:
    """Return what a replica adds to the sum over replicas.

    Args:
        value: What it has written.
        old: What the cell held before, the same on all replicas.
        merge: What becomes of the replicas' values; not `SAME`.
        part: The replica's.
    """
    match merge:
        case Merge.MEAN:
            # Not of differences, which would lose what follows on a large or infinite value. By whole numbers of rows: the mean
            # of equal values is that value. What has no rows may be no number.
            weighted = value.astype(jnp.promote_types(value.dtype, jnp.float32)) * part.count
            return weighted if all(part.counts) else jnp.where(part.count, weighted, jnp.zeros_like(weighted))
        case Merge.SUM_OF_DELTAS:
            return _number(value) - _number(old)
    return jnp.where(part.index == _kept(merge, part.counts), _number(value), jnp.zeros_like(_number(value)))


def merged(total: jax.Array, old: jax.Array, merge: Merge, part: Part) -> jax.Array:
    """Return the cell's new value from the replicas' contributions, added up; `part` is any replica's."""
    match merge:
        case Merge.MEAN:
            return (total / part.total).astype(old.dtype)
        case Merge.SUM_OF_DELTAS:
            return (_number(old) + total).astype(old.dtype)
    return total.astype(old.dtype)


def merge_values(values: Sequence[jax.Array], old: jax.Array, merge: Merge, counts: tuple[int, ...]) -> jax.Array:
    """Return a cell's new value, given what each replica has written.

    Args:
        values: The replicas' values, in replica order.
        old: What the cell held before.
        merge: What becomes of them.
        counts: How much each replica counts.
    """
    match merge:
        case Merge.SAME:
            return values[0]
        case Merge.FIRST | Merge.LAST:
            return values[_kept(merge, counts)]
    parts = [Part(i, counts) for i in range(len(values))]
    amounts = [contribution(value, old, merge, part) for value, part in zip(values, parts, strict=True)]
    return merged(functools.reduce(operator.add, amounts), old, merge, parts[0])


def _kept(merge: Merge, counts: tuple[int, ...]) -> int:
    """Return which replica's value is kept; where one has no rows, nothing may have happened."""
    counting = [i for i, count in enumerate(counts) if count]
    return counting[0] if merge is Merge.FIRST else counting[-1]


def _number(array: jax.Array) -> jax.Array:
    """Make flags summable."""
    return array.astype(jnp.int32) if array.dtype == jnp.bool_ else array
