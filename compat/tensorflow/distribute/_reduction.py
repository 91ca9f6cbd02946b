"""`strategy.reduce` and `gather`: the replicas' values become one, by TensorFlow's rules for types."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tfdist_jax import PerReplica, ReduceOp
from tfdist_jax._replica import is_per_replica
from tfdist_jax._sharding._placement import local
from tfdist_jax.compat.tensorflow._ops._arguments import invalid, require
from tfdist_jax.compat.tensorflow._ops._binary import truediv
from tfdist_jax.compat.tensorflow._ops._concat import concat, stack
from tfdist_jax.compat.tensorflow._ops._reductions import reduce_sum
from tfdist_jax.compat.tensorflow._tensors._ordered import map_in_order
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, is_tracing
from tfdist_jax.compat.tensorflow._variables._variable import Variable
from tfdist_jax.compat.tensorflow.distribute._replica_context import ReplicaContext, axis_of


def reduce_replicas(op: ReduceOp, value: Any, axis: int | None, num_replicas: int) -> Any:
    """Combine the replicas' values into one, in a structure of them.

    Args:
        op: Sum or mean. A mean of integers is a float64, of small ones a float32.
        value: `PerReplica` values; others are the same on every replica.
        axis: An axis of each replica's value to reduce too, or None.
        num_replicas: Number of replicas.

    Raises:
        ValueError: If a value that is the same everywhere is to be summed, or a value has no such axis.
        InvalidArgumentError: If the values are no numbers, or their shapes differ.
    """
    reduce_one = lambda leaf: _reduce_one(op, axis, num_replicas, _as_values(leaf))
    return map_in_order(reduce_one, value, is_leaf=is_per_replica)


def _as_values(leaf: Any) -> Any:
    """Return the replicas' values of a variable that has one for each."""
    return leaf.per_replica_value() if isinstance(leaf, Variable) and leaf.storage.per_replica else leaf


def _copies(leaf: Any) -> Any:
    """Return the copies of a mirrored variable."""
    if not isinstance(leaf, Variable) or leaf.distribute_strategy is None:
        return leaf
    count = leaf.distribute_strategy.num_replicas_in_sync
    return leaf if count == 1 else PerReplica.uneven([leaf.value()] * count)


def _reduce_one(op: ReduceOp, axis: int | None, num_replicas: int, value: Any) -> Any:
    if axis is not None:
        return _reduce_rows(op, axis, num_replicas, value)
    if isinstance(value, PerReplica):
        data, blocks = (_stacked(value.values), False) if value.is_uneven else (value.data, value.is_rows)
        return local(_combined(op, num_replicas, blocks, require(data, "fci", "reduce")))
    if op is ReduceOp.SUM and num_replicas > 1:
        raise ValueError(
            f"A non-DistributedValues value {value} cannot be reduced with the given reduce op {op}: it is the same on "
            "all replicas, so how often should it count? Multiply it yourself, or use the mean."
        )
    return value


def _reduce_rows(op: ReduceOp, axis: int, num_replicas: int, value: Any) -> Any:
    times = 1
    if not isinstance(value, PerReplica):
        value, times = convert_to_tensor(value), num_replicas
    rank = jnp.ndim(value.values[0] if isinstance(value, PerReplica) else value)
    if not -rank <= axis < rank:
        raise ValueError(
            f"`axis` = {axis} is no axis of values with {rank} dimensions, to be reduced along with the replicas."
        )
    joined = gather_one(axis, value)
    total = reduce_sum(joined, axis)
    return total * times if op is ReduceOp.SUM else truediv(total, joined.shape[axis])


def _stacked(values: Sequence[Any]) -> jax.Array:
    shapes = [jnp.shape(part) for part in values]
    if len(set(shapes)) > 1:
        raise invalid(f"The replicas' values have different shapes, {shapes}: they have no sum. Give `axis`.")
    return stack(_brought_together(values))


# One jit: each operation that is run on its own takes a tenth of a millisecond.
@functools.partial(jax.jit, static_argnums=(0, 1, 2), inline=True)
def _combined(op: ReduceOp, num_replicas: int, blocks: bool, data: jax.Array) -> jax.Array:
    rows = data.reshape(num_replicas, -1, *data.shape[1:]) if blocks else data
    total = jnp.sum(rows, 0, dtype=rows.dtype)
    return total if op is ReduceOp.SUM else truediv(total, num_replicas)


def gather_replicas(value: Any, axis: int) -> Any:
    """Join the replicas' values along `axis`, in a structure of them; other values stay as they are."""
    return jax.tree.map(lambda leaf: gather_one(axis, _copies(_as_values(leaf))), value, is_leaf=is_per_replica)


def gather_one(axis: int, value: Any) -> Any:
    """Join the replicas' values along `axis`, in replica order.

    Raises:
        InvalidArgumentError: If there is no such axis, or other sizes differ.
    """
    if not isinstance(value, PerReplica):
        return value
    value = _of_all_processes(value)
    if value.is_rows and axis == 0:
        return value.data
    first = value.values[0]
    if jnp.ndim(first) == 0:
        raise ValueError("Scalars cannot be gathered: they have no axis to join along. Use `reduce`.")
    return concat(list(_brought_together(value.values)), axis_of(first, axis))


def _of_all_processes(value: PerReplica) -> PerReplica:
    """Bring values that other processes have here."""
    return value if value.is_uneven else PerReplica(local(value.data), value.num_replicas, is_rows=value.is_rows)


def on_one_device(value: Any) -> Any:
    """Bring the replicas' values together, so that any code can combine them."""
    return PerReplica.uneven(_brought_together(value.values)) if isinstance(value, PerReplica) else value


def _brought_together(values: Sequence[Any]) -> Sequence[Any]:
    if is_tracing() or not all(isinstance(part, jax.Array) for part in values):
        return values
    home = values[0].sharding
    return [jax.device_put(part, home) for part in values]


def reduce_merging(context: ReplicaContext, op: ReduceOp, value: Any, axis: int | None) -> Any:
    """Reduce inside `merge_call`, where each value is still the replica's own."""
    if axis is not None:
        value = context.gather(value, axis)
        return jax.tree.map(functools.partial(_reduce_rows, op, axis, 1), value)
    leaves, tree = jax.tree.flatten(value)
    return tree.unflatten(context.reduce(op, leaves))
