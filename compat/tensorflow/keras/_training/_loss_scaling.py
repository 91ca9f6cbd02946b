"""Losses in replicas: each replica's mean counts as one of `num_replicas` equal parts of the global loss.

Keras calls these hooks wherever a loss is a mean; `sum` reductions pass by them, as in TensorFlow.
Ref: https://www.tensorflow.org/tutorials/distribute/custom_training#define_the_loss_function
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import jax
import keras

from tfdist_jax._thread_state import having
from tfdist_jax.compat.tensorflow._platform._context import replica_context
from tfdist_jax.compat.tensorflow.keras._change import Hook, instead
from tfdist_jax.compat.tensorflow.keras._internals import JAXTrainer, loss_module

# A `train_step` written for Keras on JAX shows the loss it computes: there the value stays that of the replica's own
# rows and only its gradient is divided. It is set while such a step is traced; no argument could carry it.
_only_gradients: ContextVar[bool] = ContextVar("only_gradients", default=False)


# By how much regularisers of weights count less where every replica has rows: those without rows add no gradient.
_present: ContextVar[float] = ContextVar("present", default=1.0)


# Whether regularisers of weights add nothing, where their part is computed by itself.
_hides_regularizers: ContextVar[bool] = ContextVar("hides_regularizers", default=False)


def hiding_regularizers() -> AbstractContextManager[None]:
    """Let regularisers of weights add nothing to a model's losses."""
    return having(_hides_regularizers, True)


@contextlib.contextmanager
def with_layer_losses(model: keras.Model, losses: Sequence[Any]) -> Iterator[None]:
    """Let `model.losses` be `losses`, which its layers have added where they computed, and what regularisers of weights add."""
    before = model._losses_override
    model._losses_override = [*losses, *model._get_regularization_losses()]
    try:
        yield
    finally:
        model._losses_override = before


def scaling_only_gradients() -> AbstractContextManager[None]:
    """Leave the values of losses as they are and divide their gradients."""
    return having(_only_gradients, True)


def rescale_regularizers(sizes: Sequence[int]) -> AbstractContextManager[None]:
    """Let gradients of weights' regularisers count for replicas without rows, too, which TensorFlow lets run."""
    return having(_present, sum(size > 0 for size in sizes) / len(sizes))


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
def _divide_gradient(value: jax.Array, divisor: float) -> jax.Array:
    return value


@_divide_gradient.defjvp
def _divide_gradient_jvp(divisor: float, primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    return primals[0], tangents[0] / divisor


def _regularization_losses(self: keras.Layer) -> list[Any]:
    if _hides_regularizers.get():
        return []
    # Keras's own reads what a step has given the variables past them, where no gradient tape sees it.
    losses = [weight.regularizer(weight) for weight in self.trainable_weights if weight.regularizer is not None]
    present = _present.get()
    return losses if present in (0, 1) else [_divide_gradient(loss, present) for loss in losses]


def _scaled(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def aggregate(self: JAXTrainer, loss: Any) -> Any:
        return scale_loss(original(self, loss))

    return aggregate


CHANGES = (
    Hook(
        loss_module,
        "scale_loss_for_distribution",
        instead(scale_loss),
        "value",
        "a replica's mean is one of R parts; not called",
    ),
    Hook(
        loss_module,
        "unscale_loss_for_distribution",
        instead(unscale_loss),
        "value",
        "metrics show the whole loss; not called",
    ),
    Hook(JAXTrainer, "_aggregate_additional_loss", _scaled, "self loss", "regularisers, too, count once"),
    Hook(
        keras.Layer,
        "_get_regularization_losses",
        instead(_regularization_losses),
        "self",
        "tapes see the variables, and replicas without rows count; not called",
    ),
)
