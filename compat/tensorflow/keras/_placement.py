"""The model's values on the strategy's devices, in memory that steps may reuse."""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec


@final
class PlacedState(tuple):
    """Lists of values that lie on the strategy's devices and that nobody else holds, as steps return them."""

    __slots__ = ()


def place(
    state: Sequence[list[jax.Array]], mesh: Mesh, *, num_read_only: int = 0, holders: Counter[int]
) -> PlacedState:
    """Copy the model's values to every device of `mesh`, where they are not there yet.

    Steps reuse the memory of the values they replace. A value that two variables share, or that somebody else still
    holds (`old = variable.value`), is therefore copied.

    Args:
        state: Lists of values, as Keras reads them from the variables.
        mesh: The mesh of the strategy.
        num_read_only: How many leading lists the steps do not replace.
        holders: How many references to a value, by its id, are known to be Keras's own.
    """
    whole = NamedSharding(mesh, PartitionSpec())
    return PlacedState(
        [
            _placed(values[j], whole, is_replaced=i >= num_read_only, is_shared=_is_shared(values, j, holders))
            for j in range(len(values))
        ]
        for i, values in enumerate(state)
    )


def _placed(value: jax.Array, whole: NamedSharding, *, is_replaced: bool, is_shared: bool) -> jax.Array:
    if value.sharding != whole:
        # The transfer alone would keep the memory of a value that is on the first device already.
        return jax.device_put(jnp.copy(value) if is_replaced else value, whole)
    return jnp.copy(value) if is_replaced and is_shared else value


def _references(values: Sequence[Any], i: int) -> int:
    return sys.getrefcount(values[i])


def _is_shared(values: Sequence[Any], i: int, holders: Counter[int]) -> bool:
    return _references(values, i) > _IN_ONE_LIST + holders[id(values[i])]


_IN_ONE_LIST = _references([object()], 0)
