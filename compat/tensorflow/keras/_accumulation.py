"""Gradient accumulation over steps with one reduction over replicas for each update."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tfdist_jax import fused_mean
from tfdist_jax._mesh import DATA

Arrays = Sequence[Any]


def accumulates(optimizer: Any) -> bool:
    """Tell whether `optimizer` uses the gradients of several steps for one update."""
    return bool(getattr(optimizer, "gradient_accumulation_steps", None))


def accumulator_slots(optimizer: Any) -> list[int]:
    """Return where the accumulated gradients stand among the optimizer's variables."""
    position = {id(variable): i for i, variable in enumerate(optimizer.variables)}
    return [position[id(variable)] for variable in optimizer._accumulated_gradients]


def apply_accumulating(optimizer: Any, values: Arrays, gradients: Arrays, trainable: Arrays) -> tuple[Any, Any]:
    """Apply the optimizer, with the reduction inside the branch that updates.

    Between updates each replica's accumulators hold its own gradients, times the number of replicas: their mean is
    what a single device would hold.

    Args:
        optimizer: A Keras optimizer with `gradient_accumulation_steps`.
        values: Its variables' values, the accumulators' being this replica's own.
        gradients: This replica's part of the gradients' sum over replicas.
        trainable: The model's trainable values.

    Returns:
        The new trainable and optimizer values.
    """
    slots = accumulator_slots(optimizer)
    iteration = next(
        value for variable, value in zip(optimizer.variables, values, strict=True) if variable is optimizer._iterations
    )
    num_replicas = jax.lax.axis_size(DATA)
    own = [None if gradient is None else gradient * num_replicas for gradient in gradients]

    def update() -> tuple[Any, Any]:
        totals = [None if g is None else values[i] + g for i, g in zip(slots, own, strict=True)]
        return optimizer.stateless_apply(_cleared(values, slots), fused_mean(totals), trainable)

    def accumulate() -> tuple[Any, Any]:
        return optimizer.stateless_apply(values, own, trainable)

    # Equal on all replicas, so that they meet in the reduction or none does.
    is_update = (iteration + 1) % optimizer.gradient_accumulation_steps == 0
    return jax.lax.cond(is_update, update, accumulate)


def _cleared(values: Arrays, slots: Sequence[int]) -> list[Any]:
    chosen = set(slots)
    return [jnp.zeros_like(value) if i in chosen else value for i, value in enumerate(values)]
