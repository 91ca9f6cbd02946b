"""Losses in replicas: each replica's mean counts as one of `num_replicas` equal parts of the global loss.

Keras calls these hooks wherever a loss is a mean; `sum` reductions pass by them, as in TensorFlow.
Ref: https://www.tensorflow.org/tutorials/distribute/custom_training#define_the_loss_function
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import jax

from tfdist_jax.compat.tensorflow._context import replica_context
from tfdist_jax.compat.tensorflow.keras._internals import JAXTrainer, loss_module

# A `train_step` written for Keras on JAX shows the loss it computes: there the value stays that of the replica's own
# rows and only its gradient is divided. It is set while such a step is traced; no argument could carry it.
_only_gradients: ContextVar[bool] = ContextVar("only_gradients", default=False)


def install() -> None:
    """Let Keras's losses know in which replica they are computed."""
    loss_module.scale_loss_for_distribution = scale_loss
    loss_module.unscale_loss_for_distribution = unscale_loss
    JAXTrainer._aggregate_additional_loss = _scaled(JAXTrainer._aggregate_additional_loss)


@contextlib.contextmanager
def scaling_only_gradients() -> Iterator[None]:
    """Leave the values of losses as they are and divide their gradients."""
    token = _only_gradients.set(True)
    try:
        yield
    finally:
        _only_gradients.reset(token)


def scale_loss(value: jax.Array) -> jax.Array:
    """Divide a mean by the number of replicas, whose results are added up; unchanged outside of replicas."""
    num_replicas = _num_replicas()
    if num_replicas == 1:
        return value
    return _divide_gradient(value, num_replicas) if _only_gradients.get() else value / num_replicas


def unscale_loss(value: jax.Array) -> jax.Array:
    """Undo `scale_loss`, for the metrics that show a loss."""
    num_replicas = _num_replicas()
    return value if num_replicas == 1 or _only_gradients.get() else value * num_replicas


def _num_replicas() -> int:
    context = replica_context()
    return 1 if context is None else context.num_replicas_in_sync


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _divide_gradient(value: jax.Array, divisor: int) -> jax.Array:
    return value


@_divide_gradient.defjvp
def _divide_gradient_jvp(divisor: int, primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    return primals[0], tangents[0] / divisor


def _scaled(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def aggregate(self: Any, loss: Any) -> Any:
        return scale_loss(original(self, loss))

    return aggregate
