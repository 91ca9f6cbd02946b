"""Compressed gradients of Keras's optimizers, and what replicas keep of them: variables that hang on the optimizer.

What is still to be sent is a variable with a value for each replica, of which checkpoints save the sum, as of all that replicas add up,
and give each of the present replicas its share; factors are alike on all replicas.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras

from tfdist_jax._sharding._compression import (
    RESIDUAL,
    Compression,
    are_finite,
    init_replica_memory,
    is_compressed,
    keep_if,
)
from tfdist_jax._stateful import _state
from tfdist_jax.compat.tensorflow._platform._context import entering_scope
from tfdist_jax.compat.tensorflow._tensors._indexed_slices import IndexedSlices
from tfdist_jax.compat.tensorflow._variables._tracking import attributes_changed
from tfdist_jax.compat.tensorflow._variables._variable import Variable, VariableAggregation, VariableSynchronization

MEMORY = "_gradient_memory"
"""The attribute of an optimizer, under which checkpoints have it: by the number of the trained variable, and by what it is."""


def sum_compressed_gradients(
    context: Any, optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]
) -> list[Any]:
    """Return the sums of those gradients that the strategy compresses, and None for others.

    Args:
        context: The replica's context, for its collectives.
        optimizer: The optimizer, to which belongs what is kept.
        gradients: This replica's gradients; entries may be None or `tf.IndexedSlices`.
        variables: The variable of each.

    Raises:
        ValueError: If the scale of the gradients changes, of which something would be kept.
    """
    method: Compression | None = context.strategy.compression
    chosen = [] if method is None else [i for i, grad in enumerate(gradients) if _is_taken(method, grad)]
    sums: list[Any] = [None] * len(gradients)
    if method is None or not chosen:
        return sums
    memories = [{} for _ in chosen]
    if method.has_memory:
        prepare_memory(context.strategy, optimizer, variables, context.make_own)
        memories = [_memory_of(optimizer, variables[i]) for i in chosen]
    before = [{name: _state.read(cell) for name, cell in each.items()} for each in memories]
    totals, kept = context.sum_compressed(method, [gradients[i] for i in chosen], before)
    if method.has_memory:
        kept = keep_if(are_finite(totals), kept, before)
    for i, total, memory, new in zip(chosen, totals, memories, kept, strict=True):
        sums[i] = total
        for name, cell in memory.items():
            _state.write(cell, new[name])
    return sums


def prepare_memory(
    strategy: Any, optimizer: Any, variables: Sequence[Any], make_own: Callable[[Callable[[], bool]], None]
) -> None:
    """Make the variables for what replicas keep of an optimizer's gradients, those that are not there yet.

    Args:
        strategy: The strategy, which may compress gradients.
        optimizer: The optimizer; it is built if it has not been.
        variables: What it trains.
        make_own: Calls, once for all replicas, a function that makes variables and says whether it has.
    """
    method: Compression | None = strategy.compression
    if method is None or not method.has_memory:
        return
    if hasattr(optimizer, "dynamic_scale"):
        raise ValueError(
            f"Gradients are to travel as {method}, of which replicas keep what is still to be sent, but `LossScaleOptimizer` changes the "
            'scale of gradients. Use the policy "mixed_bfloat16", which needs no scale, or compression="bf16".'
        )
    if not optimizer.built:
        optimizer.build(variables)
    taken = [
        (str(i), each)
        for i, each in enumerate(optimizer._trainable_variables)
        if is_compressed(method, tuple(each.shape), jnp.dtype(each.dtype))
    ]
    make_own(lambda: _make_memory(strategy, optimizer, method, taken))


def _make_memory(strategy: Any, optimizer: Any, method: Compression, taken: Sequence[tuple[str, Any]]) -> bool:
    present = vars(optimizer).get(MEMORY, {})
    missing = [(number, each) for number, each in taken if number not in present]
    if not missing:
        return False
    # Past Keras's tracking of attributes. Now, also where replicas are traced: variables outlive their program.
    with jax.ensure_compile_time_eval(), _state.entering(None), entering_scope(strategy):
        memory = {
            number: {
                name: _make_variable(f"{each.name}/{name}", name, value)
                for name, value in init_replica_memory(method, tuple(each.shape)).items()
            }
            for number, each in missing
        }
        object.__setattr__(optimizer, MEMORY, {**present, **memory})
    attributes_changed(optimizer)
    return True


def _make_variable(full_name: str, name: str, value: jax.Array) -> Variable:
    how = VariableAggregation.SUM if name == RESIDUAL else VariableAggregation.ONLY_FIRST_REPLICA
    return Variable(value, name=full_name, synchronization=VariableSynchronization.ON_READ, aggregation=how)


def _memory_of(optimizer: keras.optimizers.Optimizer, variable: Any) -> dict[str, Variable]:
    number = next((str(i) for i, each in enumerate(optimizer._trainable_variables) if each is variable), None)
    if number is None:
        raise ValueError(
            f"Unknown variable: {variable}. This optimizer can only be called for the variables it was originally built with. Build it "
            "with all of them, or make another one for this."
        )
    return vars(optimizer)[MEMORY][number]


def _is_taken(method: Compression, gradient: Any) -> bool:
    if gradient is None or isinstance(gradient, IndexedSlices):
        return False
    return is_compressed(method, tuple(gradient.shape), gradient.dtype)
