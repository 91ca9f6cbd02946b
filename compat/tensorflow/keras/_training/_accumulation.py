"""Gradient accumulation over steps with one reduction over replicas for each update."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras

from tfdist_jax import fused_mean
from tfdist_jax._sharding._mesh import DATA
from tfdist_jax.compat.tensorflow.keras._training._optimizer import overriding
from tfdist_jax.compat.tensorflow.keras._variables._overwrite_with_gradient import is_overwritten, join_overwriting

Arrays = Sequence[Any]


def accumulates(optimizer: Any) -> bool:
    """Tell whether `optimizer` uses the gradients of several steps for one update."""
    return bool(getattr(_updating(optimizer), "gradient_accumulation_steps", None))


def accumulator_slots(optimizer: Any) -> list[int | None]:
    """Return where the accumulated gradients stand among the optimizer's variables.

    None stands for those of variables that are overwritten, which are equal on all replicas.
    """
    position = {id(variable): i for i, variable in enumerate(optimizer.variables)}
    updating = _updating(optimizer)
    pairs = zip(updating._accumulated_gradients, updating._trainable_variables, strict=True)
    return [None if is_overwritten(variable) else position[id(accumulator)] for accumulator, variable in pairs]


def apply_accumulating(optimizer: Any, values: Arrays, gradients: Arrays, trainable: Arrays) -> tuple[Any, Any]:
    """Apply the optimizer, with the reduction inside the branch that updates.

    Between updates each replica's accumulators hold its own gradients, times the number of replicas: their mean is
    what a single device would hold.

    Args:
        optimizer: A Keras optimizer with `gradient_accumulation_steps`, or a `LossScaleOptimizer` around one.
        values: Its variables' values, the accumulators' being this replica's own.
        gradients: This replica's part of the gradients' sum over replicas.
        trainable: The model's trainable values.

    Returns:
        The new trainable and optimizer values.
    """
    inner = _updating(optimizer)
    if inner is optimizer:
        return _apply(optimizer, optimizer.stateless_apply, values, gradients, trainable)
    # The gradients stay apart, so that replicas have to agree on whether they are finite.
    inside = functools.partial(_apply, inner, inner.stateless_apply)
    everywhere = functools.partial(_is_true_everywhere, optimizer.check_finite)
    with overriding(inner, stateless_apply=inside), overriding(optimizer, check_finite=everywhere):
        return optimizer.stateless_apply(values, gradients, trainable)


def _updating(optimizer: Any) -> Any:
    """Return the optimizer that changes the weights."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def _is_true_everywhere(check: Any, gradients: Arrays) -> jax.Array:
    return jax.lax.pmin(jnp.asarray(check(gradients), jnp.int32), DATA) == 1


def _apply(optimizer: Any, stateless_apply: Any, values: Arrays, gradients: Arrays, trainable: Arrays) -> Any:
    values = [keras.ops.convert_to_tensor(value) for value in values]
    slots = accumulator_slots(optimizer)
    iteration = next(
        value for variable, value in zip(optimizer.variables, values, strict=True) if variable is optimizer._iterations
    )
    num_replicas, scale = jax.lax.axis_size(DATA), optimizer.loss_scale_factor or 1
    followed = [None if i is None or g is None else g * num_replicas for i, g in zip(slots, gradients, strict=True)]
    others = [g if i is None else None for i, g in zip(slots, gradients, strict=True)]

    def update() -> tuple[Any, Any]:
        # The accumulators' loss scale is undone already, the gradients' is not.
        waiting = [None if i is None else values[i] * scale for i in slots]
        totals = [None if g is None else w + g for w, g in zip(waiting, followed, strict=True)]
        return stateless_apply(_cleared(values, slots), join_overwriting(fused_mean(totals), others), trainable)

    def accumulate() -> tuple[Any, Any]:
        return stateless_apply(values, join_overwriting(followed, others), trainable)

    # Equal on all replicas, so that they meet in the reduction or none does.
    is_update = (iteration + 1) % optimizer.gradient_accumulation_steps == 0
    return jax.lax.cond(is_update, update, accumulate)


def _cleared(values: Arrays, slots: Sequence[int | None]) -> list[Any]:
    chosen = set(slots)
    return [jnp.zeros_like(value) if i in chosen else value for i, value in enumerate(values)]
