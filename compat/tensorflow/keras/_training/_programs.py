"""A step and a strategy as a program: one SPMD program, or the replicas side by side."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tfdist_jax import DATA, PerReplica
from tfdist_jax._replica import is_per_replica
from tfdist_jax._runtime import runs_on_cpu
from tfdist_jax._sharding._collectives import switch_on_size
from tfdist_jax._stateful._control_flow import scan
from tfdist_jax._stateful._lockstep import LockStep, run_in_lockstep
from tfdist_jax._stateful._merging import Part
from tfdist_jax._stateful._replica_state import Replicated, is_replicated, run_with_cells
from tfdist_jax.compat.tensorflow._platform._context import entering_replica
from tfdist_jax.compat.tensorflow.distribute._execution_contexts import (
    LockStepContext,
    OnlyReplicaContext,
    ProgramContext,
)
from tfdist_jax.compat.tensorflow.distribute._pipeline import PipelineStrategy
from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy
from tfdist_jax.compat.tensorflow.keras._training._pipelined_steps import goes_over_stages, run_over_stages
from tfdist_jax.compat.tensorflow.keras._training._steps import OwnResults, Sizes, Step
from tfdist_jax.compat.tensorflow.random._random_state import draw_for_iteration

Results = tuple[Any, Any]
"""Logs, and results by row (padded as the batch is)."""


def run_steps(step: Step, strategy: Strategy, sizes: Sizes, batches: Any) -> Results:
    """Run `step` on one batch after another, of which every one is split into `sizes`, inside a captured program.

    Args:
        step: The step.
        strategy: The facade's strategy.
        sizes: Number of real rows of each replica.
        batches: Arrays `[steps, R * max(sizes), ...]`, whose rows are split over the replicas.

    Returns:
        The last step's results.
    """
    step.begin(strategy)
    if strategy.storage.is_served:
        run = functools.partial(run_on_worker, step, strategy, sizes)
        return [
            run(jax.tree.map(lambda leaf, i=i: leaf[i], batches)) for i in range(jax.tree.leaves(batches)[0].shape[0])
        ][-1]
    over_stages = isinstance(strategy, PipelineStrategy) and goes_over_stages(step)
    # Without a strategy there are no devices that a program for all replicas could be bound to.
    one_by_one = strategy.is_default or (step.communicates and len(set(sizes)) > 1)
    run_step = run_over_stages if over_stages else run_side_by_side if one_by_one else _run_as_one
    run = functools.partial(run_step, step, strategy, sizes)
    count = jax.tree.leaves(batches)[0].shape[0]
    # XLA on CPU runs the body of a loop several times slower than the same steps one after another.
    if count > 1 and not runs_on_cpu(strategy.native.mesh):
        return _looped(run, count, batches)
    return [run(jax.tree.map(lambda leaf, i=i: leaf[i], batches)) for i in range(count)][-1]


def run_on_worker(step: Step, strategy: Strategy, sizes: Sizes, batch: Any) -> Results:
    """Run `step` as one worker beside others, which change the same variables on servers."""
    with step.prepared(), entering_replica(strategy, OnlyReplicaContext(strategy)):
        results = step.local(batch, sizes)
        return step.finish_alone(results), results.rows


def run_side_by_side(step: Step, strategy: Strategy, sizes: Sizes, batch: Any) -> Results:
    """Run `step` for each replica's rows in turn, meeting at collectives; arrays may be concrete or traced.

    For steps that communicate while replicas have different numbers of rows, for stepping through a model in a debugger,
    and for the one replica that there is without a strategy. Replicas without rows take no part, unless none has any.
    """
    running = [i for i, size in enumerate(sizes) if size or not any(sizes)]
    counts = tuple(_counts(sizes)[i] for i in running)

    def make_replica(lockstep: LockStep, place: int) -> Callable[[], Results]:
        i = running[place]
        start = i * max(sizes)
        rows = jax.tree.map(lambda leaf: leaf[start : start + sizes[i]], batch)
        context = LockStepContext(strategy, lockstep, i, place)

        def replica() -> Results:
            with entering_replica(strategy, context):
                results = step.local(rows, sizes)
                return step.finish(results, Part(place, counts)), results.rows

        return replica

    with step.prepared():
        results = run_in_lockstep(make_replica, counts)
    return results[0][0], jax.tree.map(lambda *rows: _side_by_side(rows, sizes), *[rows for _, rows in results])


def _run_as_one(step: Step, strategy: Strategy, sizes: Sizes, batch: Any) -> Results:
    """Run the step on the replicas of an SPMD program: one reduction for all that is added up."""
    num_replicas = strategy.num_replicas_in_sync

    def branch(size: int) -> Callable[[Any], OwnResults]:
        if size == 0 and any(sizes):
            return lambda batch: step.nothing(jax.eval_shape(branch(max(sizes)), batch))
        return lambda batch: _on_rows(step, batch, size, sizes)

    def replica(batch: Any) -> Results:
        with step.prepared(), entering_replica(strategy, ProgramContext(strategy)):
            results = switch_on_size(sizes, branch, batch)
            logs = step.finish(results, Part(jax.lax.axis_index(DATA), _counts(sizes)))
        return jax.tree.map(Replicated, logs), results.rows

    split = jax.tree.map(lambda leaf: PerReplica(leaf, num_replicas, is_rows=True), batch)
    logs, rows = strategy.per_replica_storage.with_cells(
        lambda cells: run_with_cells(replica, (split,), strategy.native.mesh, own_cells=cells)
    )
    logs = jax.tree.map(lambda leaf: leaf.value, logs, is_leaf=is_replicated)
    joined = lambda leaf: leaf.data.reshape(-1, *leaf.data.shape[2:])
    return logs, jax.tree.map(joined, rows, is_leaf=is_per_replica)


def _counts(sizes: Sizes) -> Sizes:
    """Return how much each replica counts in means: its rows, or if there are none at all, all alike."""
    return sizes if any(sizes) else (1,) * len(sizes)


def _on_rows(step: Step, batch: Any, size: int, sizes: Sizes) -> OwnResults:
    results = step.local(jax.tree.map(lambda leaf: leaf[:size], batch), sizes)
    return results._replace(rows=jax.tree.map(lambda rows: _padded(rows, size, sizes), results.rows))


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


def _looped(run: Callable[[Any], Results], count: int, batches: Any) -> Results:
    def body(nothing: tuple[()], numbered: Any) -> tuple[tuple[()], Results]:
        number, batch = numbered
        with draw_for_iteration(number):
            return nothing, run(batch)

    _, results = scan(body, (), (jnp.arange(count), batches))
    return jax.tree.map(lambda values: values[-1], results)
