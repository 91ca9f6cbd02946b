"""Replica programs: one function run on every replica's own values."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.sharding import Mesh, PartitionSpec

from tfdist_jax._internals import EvalTrace, current_trace
from tfdist_jax._multiprocess._agreed_program import jit_with_agreement
from tfdist_jax._sharding._collectives import ReduceOp, map_replicas
from tfdist_jax._sharding._mesh import batch_spec, replicas
from tfdist_jax._sharding._placement import local, local_replicas
from tfdist_jax._sharding._values import PerReplica


def is_per_replica(value: Any) -> bool:
    """Tell `PerReplica` values from other pytree nodes, for `jax.tree` functions' `is_leaf`."""
    return isinstance(value, PerReplica)


def run_on_replicas(fn: Callable[..., Any], mesh: Mesh, args: tuple[Any, ...]) -> Any:
    """Run `fn` on every replica; `PerReplica` leaves of `args` are split, all others are the same everywhere.

    Returns:
        What `fn` returns, each array as a `PerReplica` over the replicas' results.

    Raises:
        ValueError: If a `PerReplica` has another number of replicas than `mesh`, or differing shapes.
        NotImplementedError: If the devices of one replica belong to several processes.
    """
    leaves, tree = jax.tree.flatten(args, is_leaf=is_per_replica)
    count = len(replicas(mesh))
    splits = tuple(_check_split(leaf, count) for leaf in leaves)
    data = [leaf.data if isinstance(leaf, PerReplica) else leaf for leaf in leaves]
    results = _program(mesh)(fn, tree, splits, data)
    return jax.tree.map(lambda result: PerReplica(result, count), results)


def _check_split(leaf: Any, num_replicas: int) -> str:
    if not isinstance(leaf, PerReplica):
        return "whole"
    if leaf.num_replicas != num_replicas:
        raise ValueError(
            f"A value for {leaf.num_replicas} replicas was passed to a strategy with {num_replicas}. "
            "Split the batch with the strategy that runs it."
        )
    if leaf.is_uneven:
        raise ValueError(
            f"The replicas' values have different shapes {[jnp.shape(v) for v in leaf.values]}, but `run` makes one "
            "program for all replicas. Use `put` with `value_and_grad`, which is exact for uneven batches, or pad "
            "the batch to equal parts and mask the padding."
        )
    return "rows" if leaf.is_rows else "entry"


@functools.cache
def _program(mesh: Mesh) -> Any:
    return jit_with_agreement(functools.partial(_run, mesh), mesh, name="run", static_argnums=(0, 1, 2))


def _run(mesh: Mesh, fn: Callable[..., Any], tree: Any, splits: tuple[str, ...], data: list[Any]) -> Any:
    def body(data: list[Any]) -> Any:
        own = [leaf[0] if split == "entry" else leaf for leaf, split in zip(data, splits, strict=True)]
        return jax.tree.map(lambda out: jnp.asarray(out)[None], fn(*jax.tree.unflatten(tree, own)))

    each = batch_spec(mesh)
    specs = [PartitionSpec() if split == "whole" else each for split in splits]
    return map_replicas(body, mesh, in_specs=(specs,), out_specs=each)(data)


def reduce(op: ReduceOp, value: Any, *, axis: int | None = None) -> Any:
    """Combine the replicas' values into one.

    Args:
        op: Sum or mean over the replicas and, with `axis`, over that axis too (the mean over all its elements,
            so that replicas with more rows weigh more).
        value: Pytree with `PerReplica` leaves. Other leaves are the same everywhere: a mean keeps them.
        axis: Axis of each replica's value to reduce as well.

    Raises:
        ValueError: If values that are not per replica are to be summed.
    """
    return jax.tree.map(lambda leaf: _reduce_leaf(op, leaf, axis), value, is_leaf=is_per_replica)


def _reduce_leaf(op: ReduceOp, value: Any, axis: int | None) -> Any:
    if not isinstance(value, PerReplica):
        if op is ReduceOp.SUM:
            raise ValueError(
                f"A value that is not per replica ({value!r}) cannot be summed over replicas: how often should it "
                "count? Multiply it yourself, or use the mean."
            )
        return value if axis is None else jnp.mean(value, axis)
    combine = jnp.sum if op is ReduceOp.SUM else jnp.mean
    if axis is not None:
        return combine(gather(value, axis=axis), axis)
    if value.is_uneven:
        home = _common_device(value.values)
        return combine(jnp.stack([jax.device_put(v, home) for v in value.values]), 0)
    data = value.data
    if value.is_rows:
        data = data.reshape(value.num_replicas, -1, *data.shape[1:])
    return local(combine(data, 0))


def gather(value: Any, *, axis: int = 0) -> Any:
    """Join the replicas' values along `axis`, in replica order.

    Args:
        value: Pytree with `PerReplica` leaves; other leaves are returned as they are.
        axis: The axis to join along; the values' other sizes must be equal.
    """
    return jax.tree.map(lambda leaf: _gather_leaf(leaf, axis), value, is_leaf=is_per_replica)


def _gather_leaf(value: Any, axis: int) -> Any:
    if not isinstance(value, PerReplica):
        return value
    if value.is_rows and axis == 0:
        return local(value.data)
    value = PerReplica(local(value.data), value.num_replicas, is_rows=value.is_rows)
    if any(jnp.ndim(v) == 0 for v in value.values):
        raise ValueError("Scalars cannot be gathered: they have no axis to join along. Use `reduce`.")
    home = _common_device(value.values)
    return jnp.concatenate([jax.device_put(v, home) for v in value.values], axis)


def _common_device(values: tuple[Any, ...]) -> Any:
    """Return the first replica's device, or None (leave where it is) inside of programs."""
    is_eager = isinstance(current_trace(), EvalTrace) and not any(isinstance(value, Tracer) for value in values)
    return values[0].sharding if is_eager else None


def local_results(value: Any, mesh: Mesh) -> tuple[Any, ...]:
    """Return the value of each replica of this process; one entry if it is not per replica."""
    if not isinstance(value, PerReplica):
        return (value,)
    return tuple(value.values[i] for i in local_replicas(mesh)) if value.is_uneven else value.values
