"""How the replicas' values of a variable become one, by its `aggregation` or its kind."""

import dataclasses
from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp

from tfdist_jax.compat.tensorflow._platform._context import replica_context

Values = list[jax.Array]
Changes = list[jax.Array | None]


@final
@dataclasses.dataclass(frozen=True)
class Share:
    """One replica's part of a batch.

    Attributes:
        rows: Number of rows this replica has.
        sizes: Number of rows of every replica.
    """

    rows: int
    sizes: tuple[int, ...]

    @property
    def weight(self) -> float:
        """How much this replica counts in an average over the batch."""
        return self.count / self.total

    @property
    def count(self) -> int:
        """Number of rows this replica has; 1 if there are no rows at all, so that all replicas count alike."""
        return self.rows if any(self.sizes) else 1

    @property
    def total(self) -> int:
        """What the counts of all replicas add up to."""
        return sum(self.sizes) or len(self.sizes)

    @property
    def all_replicas_have_rows(self) -> bool:
        """Whether every replica runs the step, so that what depends on no data advances alike on all."""
        return 0 not in self.sizes


def changes(variables: Sequence[Any], old: Values, new: Values, share: Share) -> tuple[Changes, Changes]:
    """Tell what a replica that ran a step on its own rows contributes to the variables.

    A metric's sums add up what each replica saw; statistics, such as BatchNormalization's, count each replica by
    its rows; everything else follows replica 0.

    Args:
        variables: The Keras variables.
        old: Their values before the step, equal on all replicas.
        new: Their values after it; the same object where nothing was assigned.
        share: The replica's part of the batch.

    Returns:
        Two lists with an entry per variable. The first are amounts to be added up over the replicas, from which
        `merged` makes new values; the second are new values that all replicas have alike. Both are None where nothing changed.
    """
    summed, same = [], []
    for variable, before, after in zip(variables, old, new, strict=True):
        changed = after is not before
        alike = len(share.sizes) == 1 or (_is_seed(variable) and share.all_replicas_have_rows)
        summed.append(_amount(variable, before, after, share) if changed and not alike else None)
        same.append(after if changed and alike else None)
    return summed, same


def merged(variables: Sequence[Any], old: Values, sums: Changes, same: Changes, share: Share) -> Values:
    """Return the variables' common new values from what `changes` gave, added up over the replicas."""

    def new(variable: Any, value: jax.Array, total: jax.Array | None, alike: jax.Array | None) -> jax.Array:
        if total is None:
            return value if alike is None else alike
        whole = total / share.total if _is_averaged(variable, value) else _number(value) + total
        return whole.astype(value.dtype)

    return [new(*each) for each in zip(variables, old, sums, same, strict=True)]


def _amount(variable: Any, old: jax.Array, new: jax.Array, share: Share) -> jax.Array:
    if _is_averaged(variable, old):
        # Not of differences, which would lose what follows on a large or infinite value. By whole numbers of rows: the mean
        # of equal counts is that count.
        return new.astype(jnp.promote_types(new.dtype, jnp.float32)) * share.count
    change = _number(new) - _number(old)
    if variable.aggregation == "sum":
        return change
    context = replica_context()
    is_first = context is None or context.replica_id_in_sync_group == 0
    return jnp.where(is_first, change, jnp.zeros_like(change))


def _is_averaged(variable: Any, value: jax.Array) -> bool:
    return variable.aggregation not in ("sum", "only_first_replica") and jnp.issubdtype(value.dtype, jnp.floating)


def _number(array: jax.Array) -> jax.Array:
    """Make flags summable."""
    return array.astype(jnp.int32) if array.dtype == jnp.bool_ else array


def _is_seed(variable: Any) -> bool:
    """Whether the variable belongs to a `SeedGenerator`, whose state advances with each draw whatever the data."""
    return variable.name == "seed_generator_state"
