"""Values that differ between replicas."""

from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.core import Tracer


@final
@jax.tree_util.register_pytree_node_class
class PerReplica:
    """One value for each replica.

    Held as one array whose leading axis is sharded over the replicas, so that a program can use it without
    copies; or, when the replicas' shapes differ, as a tuple.

    Attributes:
        data: The array, sharded `P(DATA)`, or a tuple with one array per replica.
        num_replicas: How many values there are.
        is_rows: Whether each replica's value is a block of rows of `data` (`[rows, ...]`), rather than one
            entry of its leading axis (`[num_replicas, ...]`).

    Example:
        >>> import numpy as np, tfdist_jax as td
        >>> strategy = td.Mirrored()
        >>> doubled = strategy.run(lambda x: 2 * x.sum(), strategy.split(np.arange(8.0)))
        >>> [float(value) for value in doubled.values]
        [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]
    """

    __slots__ = ("data", "is_rows", "num_replicas")

    def __init__(self, data: Any, num_replicas: int, *, is_rows: bool = False) -> None:
        """Hold `data`, split as the attributes describe."""
        self.data = data
        self.num_replicas = num_replicas
        self.is_rows = is_rows

    @classmethod
    def uneven(cls, values: Sequence[Any]) -> "PerReplica":
        """Hold values whose shapes differ."""
        return cls(tuple(values), len(values))

    @property
    def is_uneven(self) -> bool:
        """Whether the replicas' values are kept apart because their shapes differ."""
        return isinstance(self.data, tuple)

    @property
    def values(self) -> tuple[jax.Array, ...]:
        """The value of each replica, in replica order, each on its replica's device where that is known.

        Of an array over several processes only this process's.
        """
        if self.is_uneven:
            return self.data
        if isinstance(self.data, Tracer) or len(self.data.sharding.device_set) != self.num_replicas:
            blocks = jnp.split(self.data, self.num_replicas)
        else:
            shards = sorted(self.data.addressable_shards, key=lambda s: s.index[0].start or 0)
            blocks = [shard.data for shard in shards]
        return tuple(blocks) if self.is_rows else tuple(block[0] for block in blocks)

    def replica_types(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of one replica's value; even values only."""
        rows = self.data.shape[0] // self.num_replicas
        shape = (rows, *self.data.shape[1:]) if self.is_rows else self.data.shape[1:]
        return jax.ShapeDtypeStruct(shape, self.data.dtype)

    def __repr__(self) -> str:
        inner = ",\n".join(f"  {i}: {value!r}" for i, value in enumerate(self.values))
        return f"PerReplica:{{\n{inner}\n}}"

    def tree_flatten(self) -> tuple[tuple[Any], tuple[int, bool]]:
        """Return the array (or tuple) and what says how it is split."""
        return (self.data,), (self.num_replicas, self.is_rows)

    @classmethod
    def tree_unflatten(cls, how: tuple[int, bool], children: tuple[Any]) -> "PerReplica":
        """Rebuild from `tree_flatten`'s parts."""
        return cls(children[0], how[0], is_rows=how[1])
