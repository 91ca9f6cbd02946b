"""The model's values on the strategy's devices, in memory that steps may reuse."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tfdist_jax._sharding._placement import put


@final
class Values(Sequence[jax.Array]):
    """The values of one kind of variable on the strategy's devices.

    Not a list: Keras looks for layers in every list that a model holds, which here would be every value in each step.
    """

    __slots__ = ("arrays",)

    def __init__(self, arrays: list[jax.Array]) -> None:
        """Hold `arrays`."""
        self.arrays = arrays

    def __len__(self) -> int:
        return len(self.arrays)

    def __getitem__(self, i: Any) -> Any:
        return self.arrays[i]

    def __iter__(self) -> Iterator[jax.Array]:
        return iter(self.arrays)


Placed = tuple[Values, ...]
"""The state between steps: on the strategy's devices, and nobody else holds its memory."""


def is_placed(state: Any) -> bool:
    """Tell what a step has returned from what Keras has read from the variables."""
    return type(state[0]) is Values


def place(state: Sequence[list[jax.Array]], mesh: Mesh, *, num_kept: int = 0, holders: Counter[int]) -> Placed:
    """Copy the model's values to every device of `mesh`, where they are not there yet.

    Steps may reuse the memory of the values they replace. A value that two variables share, or that somebody else still
    holds (`old = variable.value`), is therefore copied.

    Args:
        state: Lists of values, as Keras reads them from the variables.
        mesh: The mesh of the strategy.
        num_kept: How many leading lists' memory the steps do not reuse.
        holders: How many references to a value, by its id, are known to be Keras's own.
    """
    whole = NamedSharding(mesh, PartitionSpec())
    return tuple(
        Values([_placed(values, j, whole, holders if i >= num_kept else None) for j in range(len(values))])
        for i, values in enumerate(state)
    )


def _placed(values: Sequence[jax.Array], i: int, whole: NamedSharding, holders: Counter[int] | None) -> jax.Array:
    """Return a value on the mesh; one that steps may replace if `holders` are given."""
    # First, since every name for the value is one more reference.
    is_shared = _references(values, i) > _IN_ONE_LIST + (0 if holders is None else holders[id(values[i])])
    value, is_replaced = values[i], holders is not None
    if value.sharding != whole:
        # The transfer alone would keep the memory of a value that is on the first device already.
        return put(jnp.copy(value) if is_replaced else value, whole)
    return jnp.copy(value) if is_replaced and is_shared else value


def _references(values: Sequence[Any], i: int) -> int:
    return sys.getrefcount(values[i])


_IN_ONE_LIST = _references([object()], 0)
