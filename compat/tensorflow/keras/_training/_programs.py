"""A step and a strategy as a program: one SPMD program, or the replicas side by side."""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from tfdist_jax import DATA, fused_sum
from tfdist_jax._gradients import switch_on_size
from tfdist_jax._runtime import runs_on_cpu
from tfdist_jax._sharding._collectives import map_replicas
from tfdist_jax._stateful._lockstep import LockStep
from tfdist_jax.compat.tensorflow._platform._context import entering_replica
from tfdist_jax.compat.tensorflow.distribute._replica_contexts import LockStepContext, ProgramContext
from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy
from tfdist_jax.compat.tensorflow.keras._training._aggregation import Share
from tfdist_jax.compat.tensorflow.keras._training._steps import Parts, State, Step
from tfdist_jax.compat.tensorflow.random._random_state import draw_for_iteration

Sizes = tuple[int, ...]
Results = tuple[Any, Any, State]
"""Logs, results by row (padded as the batch is) and the new state."""

SPLIT_STEPS = PartitionSpec(None, DATA)
"""How batches of several steps, `[steps, rows, ...]`, lie on the devices."""


def stacked(batches: Sequence[Any]) -> Any:
    """Join host batches of equal shapes to `[steps, rows, ...]`: one transfer for all."""
    if len(batches) == 1:
        return jax.tree.map(lambda leaf: leaf[None], batches[0])
    return jax.tree.map(lambda *leaves: np.stack(leaves), *batches)


def run_steps(step: Step, strategy: Strategy, sizes: Sizes, state: State, batches: Any) -> Results:
    """Run `step` on one batch after another, of which every one is split into `sizes`.

    Args:
        step: The step.
        strategy: The facade's strategy.
        sizes: Number of real rows of each replica.
        state: The model's values, equal on all devices.
        batches: Arrays `[steps, R * max(sizes), ...]`, sharded `SPLIT_STEPS`.

    Returns:
        The last step's results and the state after it.
    """
    # XLA on CPU runs the body of a loop several times slower than the same steps one after another.
    several = _unrolled if runs_on_cpu(strategy.native.mesh) or _num_steps(batches) == 1 else _looped
    if step.communicates and len(set(sizes)) > 1:
        return several(functools.partial(run_side_by_side, step, strategy, sizes), state, batches)

    def replica(state: State, batches: Any) -> Results:
        with step.prepared(), entering_replica(strategy, ProgramContext(strategy)):
            return several(functools.partial(_run_replica, step, strategy, sizes), state, batches)

    whole, split = PartitionSpec(), PartitionSpec(DATA)
    specs = {"in_specs": (whole, SPLIT_STEPS), "out_specs": (whole, split, whole)}
    program = map_replicas(replica, strategy.native.mesh, **specs)
    return program(state, batches)


def run_side_by_side(step: Step, strategy: Strategy, sizes: Sizes, state: State, batch: Any) -> Results:
    """Run `step` for each replica's rows in turn, meeting at collectives; arrays may be concrete or traced.

    For steps that communicate while replicas have different numbers of rows, and for stepping through a model in
    a debugger. Replicas without rows take no part, unless none has any.
    """
    running = [i for i, size in enumerate(sizes) if size or not any(sizes)]
    lockstep = LockStep(len(running))

    def replica(i: int) -> Callable[[], Parts]:
        start = i * max(sizes)
        rows = jax.tree.map(lambda leaf: leaf[start : start + sizes[i]], batch)
        context = LockStepContext(strategy, lockstep, i)

        def run() -> Parts:
            with entering_replica(strategy, context):
                return step.local(state, rows, Share(sizes[i], sizes))

        return run

    with step.prepared():
        parts = lockstep.run([replica(i) for i in running])
    summed = jax.tree.map(lambda *values: functools.reduce(operator.add, values), *[p.summed for p in parts])
    largest = jax.tree.map(lambda *values: functools.reduce(jnp.maximum, values), *[p.largest for p in parts])
    logs, state = step.finish(state, parts[0]._replace(summed=summed, largest=largest), Share(sizes[0], sizes))
    return logs, jax.tree.map(lambda *rows: _side_by_side(rows, sizes), *[p.rows for p in parts]), state


def _run_replica(step: Step, strategy: Strategy, sizes: Sizes, state: State, batch: Any) -> Results:
    """Run the step on this replica of an SPMD program: one reduction for all that is summed."""

    def branch(size: int) -> Callable[[Any], Parts]:
        if size == 0 and any(sizes):
            return lambda batch: _nothing(branch(max(sizes)), batch)
        return lambda batch: _local_rows(step, state, batch, Share(size, sizes))

    parts = switch_on_size(sizes, branch, batch)
    leaves, tree = jax.tree.flatten(parts.summed)
    summed = tree.unflatten(fused_sum(leaves, bucket_bytes=strategy.bucket_bytes))
    largest = jax.tree.map(functools.partial(jax.lax.pmax, axis_name=DATA), parts.largest)
    logs, state = step.finish(state, parts._replace(summed=summed, largest=largest), Share(sizes[0], sizes))
    return logs, parts.rows, state


def _local_rows(step: Step, state: State, batch: Any, share: Share) -> Parts:
    parts = step.local(state, jax.tree.map(lambda leaf: leaf[: share.rows], batch), share)
    return parts._replace(rows=jax.tree.map(lambda rows: _padded(rows, share.rows, share.sizes), parts.rows))


def _nothing(branch: Callable[[Any], Parts], batch: Any) -> Parts:
    """What a replica without rows contributes: zeros, in the shapes of the others'."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(branch, batch))


def _side_by_side(rows: Sequence[jax.Array], sizes: Sizes) -> jax.Array:
    """Join the rows of the replicas that have any, each replica's filled up to the most that any has."""
    given = iter(rows)
    if not any(sizes):
        return jnp.concatenate(rows)
    filled = [_padded(next(given), size, sizes) if size else None for size in sizes]
    nothing = jnp.zeros_like(next(block for block in filled if block is not None))
    return jnp.concatenate([nothing if block is None else block for block in filled])


def _padded(rows: jax.Array, size: int, sizes: Sizes) -> jax.Array:
    """Fill the results of `size` rows up with zeros to as many as the most rows of a replica give.

    Raises:
        ValueError: If the results are not so many for each row.
    """
    if len(set(sizes)) == 1:
        return rows
    if not rows.ndim or rows.shape[0] % size:
        raise ValueError(
            f"Predictions of shape {rows.shape} for {size} rows cannot be divided among rows, but the replicas have different "
            f"numbers of them, {sizes}. Return the same number of results for each row, or predict with batches that the "
            f"{len(sizes)} replicas can share evenly."
        )
    missing = rows.shape[0] // size * max(sizes) - rows.shape[0]
    return jnp.pad(rows, [(0, missing)] + [(0, 0)] * (rows.ndim - 1)) if missing else rows


def _num_steps(batches: Any) -> int:
    return jax.tree.leaves(batches)[0].shape[0]


def _unrolled(run: Callable[[State, Any], Results], state: State, batches: Any) -> Results:
    logs, rows = {}, None
    for i in range(_num_steps(batches)):
        logs, rows, state = run(state, jax.tree.map(lambda leaf, i=i: leaf[i], batches))
    return logs, rows, state


def _looped(run: Callable[[State, Any], Results], state: State, batches: Any) -> Results:
    def body(state: State, numbered: Any) -> tuple[State, Any]:
        number, batch = numbered
        with draw_for_iteration(number):
            logs, rows, state = run(state, batch)
        return state, (logs, rows)

    state, results = jax.lax.scan(body, state, (jnp.arange(_num_steps(batches)), batches))
    logs, rows = jax.tree.map(lambda values: values[-1], results)
    return logs, rows, state
