"""`LossScaleOptimizer` in custom loops: gradients are summed before they are checked, and the older methods are there."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from keras.optimizers import LossScaleOptimizer

from tfdist_jax._stateful._served_storage import update
from tfdist_jax.compat.tensorflow._ops._control import cond
from tfdist_jax.compat.tensorflow._platform._context import replica_context
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.keras._change import Addition, Hook
from tfdist_jax.compat.tensorflow.keras._internals import get_stateless_scope
from tfdist_jax.compat.tensorflow.keras._training._round_gradients import give_to_round
from tfdist_jax.compat.tensorflow.keras._training._summed_updates import apply_summed
from tfdist_jax.compat.tensorflow.keras._variables._overwrite_with_gradient import (
    join_overwriting,
    split_overwriting,
)

# Set on an optimizer between `get_unscaled_gradients` and the `apply` that must not divide a second time.
_UNSCALED = "_tfdist_unscaled"


def get_scaled_loss(self: LossScaleOptimizer, loss: Any) -> Any:
    """Return the loss, or what a function of no arguments returns, times the scale; as before Keras 3."""
    if callable(loss):
        return lambda: get_scaled_loss(self, loss())
    tensor = convert_to_tensor(loss)
    return tensor * _scale(self).astype(tensor.dtype)


def get_unscaled_gradients(self: LossScaleOptimizer, grads: Sequence[Any]) -> list[Any]:
    """Return gradients of a scaled loss divided by the scale; the next `apply_gradients` takes them as they are."""
    object.__setattr__(self, _UNSCALED, True)
    return _times(grads, 1 / _scale(self))


def _scale(self: LossScaleOptimizer) -> Any:
    """Return the scale, float32; the first one before the optimizer is built."""
    return convert_to_tensor(self.dynamic_scale) if self.built else jnp.float32(self.initial_scale)


def _times(grads: Sequence[Any], factor: Any) -> list[Any]:
    tensors = [None if grad is None else convert_to_tensor(grad) for grad in grads]
    return [None if grad is None else grad * factor.astype(grad.dtype) for grad in tensors]


def _applying(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def apply(self: LossScaleOptimizer, grads: Sequence[Any], trainable_variables: Any = None) -> None:
        if vars(self).get(_UNSCALED, False):
            # What follows divides by the scale, a power of two: so nothing is lost, and what `split_overwriting` keeps is whole again.
            grads = _times(grads, _scale(self))
            object.__setattr__(self, _UNSCALED, False)
        if get_stateless_scope() is not None:
            original(self, list(grads), trainable_variables)
            return
        if not self.built:
            self.build(trainable_variables)
        variables = self._trainable_variables if trainable_variables is None else list(trainable_variables)
        if give_to_round(self, grads, variables):
            return
        context = replica_context()
        if context is None:
            update(lambda: _apply_if_finite(self, list(grads), variables), [*self.variables, *variables])
            return
        apply_summed(context, self, grads, variables, lambda sums: _apply_if_finite(self, sums, variables))

    return apply


def _apply_if_finite(optimizer: Any, grads: list[Any], variables: list[Any]) -> None:
    """Apply gradients if they are finite on all replicas, and let the scale follow."""
    scale, counter = optimizer.dynamic_scale, optimizer.step_counter

    def follow() -> None:
        scaled, values = split_overwriting(grads, variables)
        own = join_overwriting(_times(scaled, 1 / _scale(optimizer)), values)
        optimizer.inner_optimizer.apply(own, variables)
        grows = convert_to_tensor(counter) == optimizer.dynamic_growth_steps - 1
        scale.assign(jnp.where(grows, 2 * convert_to_tensor(scale), convert_to_tensor(scale)))
        counter.assign(jnp.where(grows, 0, convert_to_tensor(counter) + 1))

    def skip() -> None:
        scale.assign(convert_to_tensor(scale) * 0.5)
        counter.assign(0)

    present = [convert_to_tensor(grad) for grad in grads if grad is not None]
    finite = jnp.all(jnp.asarray([jnp.all(jnp.isfinite(grad)) for grad in present])) if present else jnp.asarray(True)
    cond(finite, follow, skip)


CHANGES = (
    Hook(
        LossScaleOptimizer,
        "apply",
        _applying,
        "self grads trainable_variables",
        "gradients are summed before they are checked; not called in custom loops",
    ),
    Addition(LossScaleOptimizer, "get_scaled_loss", get_scaled_loss),
    Addition(LossScaleOptimizer, "get_unscaled_gradients", get_unscaled_gradients),
    Addition(LossScaleOptimizer, "loss_scale", property(_scale)),
)
