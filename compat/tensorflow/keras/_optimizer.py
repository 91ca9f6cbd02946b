"""Keras optimizers in replicas: gradients are summed over the replicas before they are applied."""

import functools
from collections.abc import Callable
from typing import Any

from tfdist_jax.compat.tensorflow._context import replica_context
from tfdist_jax.compat.tensorflow._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.keras._internals import BaseOptimizer, get_stateless_scope


def install() -> None:
    """Let `optimizer.apply` and `apply_gradients` reduce gradients inside `strategy.run`."""
    BaseOptimizer.apply = _reducing(BaseOptimizer.apply)


def _reducing(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        # Tensor-like gradients, such as accumulators held in tf.Variable, are fine for TensorFlow.
        grads = [None if grad is None else convert_to_tensor(grad) for grad in grads]
        context = replica_context()
        if context is None or get_stateless_scope() is not None:
            return original(self, grads, trainable_variables)
        summed = context.all_reduce("SUM", grads)
        with context.updating():
            return original(self, summed, trainable_variables)

    return apply
