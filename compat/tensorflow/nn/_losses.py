"""Losses of logits, and averages of losses over the global batch."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from tfdist_jax.compat.tensorflow._ops._arguments import compute, invalid, require, same_type, static_int
from tfdist_jax.compat.tensorflow._ops._cast import cast
from tfdist_jax.compat.tensorflow._ops._subgradients import absolute
from tfdist_jax.compat.tensorflow._platform._context import current_strategy, replica_context
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._checks import check_indices
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor


def softmax_cross_entropy_with_logits(labels: Any, logits: Any, axis: Any = -1, name: str | None = None) -> jax.Array:
    """Return the cross entropy of each example; that of 16-bit logits is computed in float32.

    Args:
        labels: Probabilities of the classes; differentiable.
        logits: Logarithms, not normalised, of the same shape.
        axis: The axis of the classes.
        name: Unused.
    """
    logits = require(convert_to_tensor(logits), "f", "nn.softmax_cross_entropy_with_logits")
    where = static_int(axis, "axis")
    wide = cast(logits, _dtypes.float32) if as_dtype(logits.dtype).size < 4 else logits
    labels = cast(labels, wide.dtype)
    return cast(compute(lambda: -jnp.sum(labels * jax.nn.log_softmax(wide, where), where)), logits.dtype)


def sparse_softmax_cross_entropy_with_logits(labels: Any, logits: Any, name: str | None = None) -> jax.Array:
    """Return the cross entropy of each example; that of float16 logits is computed in float32.

    A label out of range raises if it is known and on CPU, and gives NaN otherwise, as TensorFlow does on GPU.

    Args:
        labels: Numbers of the right classes, `[...]`.
        logits: `[..., classes]`.
        name: Unused.
    """
    labels = require(convert_to_tensor(labels), "i", "nn.sparse_softmax_cross_entropy_with_logits")
    logits = require(convert_to_tensor(logits), "f", "nn.sparse_softmax_cross_entropy_with_logits")
    if tuple(labels.shape) != tuple(logits.shape[:-1]):
        raise ValueError(
            "`labels.shape` must equal `logits.shape` except for the last dimension. Received: "
            f"labels.shape={tuple(labels.shape)} and logits.shape={tuple(logits.shape)}"
        )
    check_indices(labels, logits.shape[-1])
    inside = (labels >= 0) & (labels < logits.shape[-1])
    safe = jnp.where(inside, labels, 0)[..., None]
    wide = cast(logits, _dtypes.float32) if as_dtype(logits.dtype) == _dtypes.float16 else logits
    own = jnp.take_along_axis(jax.nn.log_softmax(wide), safe, -1)[..., 0]
    return cast(jnp.where(inside, -own, jnp.nan), logits.dtype)


def sigmoid_cross_entropy_with_logits(labels: Any = None, logits: Any = None, name: str | None = None) -> jax.Array:
    """Return the cross entropy of each independent class, element by element."""
    labels, logits = _both(labels, logits)
    positive = logits >= 0
    # Not the maximum and abs: at 0, where logits begin if the last layer's weights do, their gradients make no sigmoid.
    return jnp.where(positive, logits, 0) - logits * labels + jnp.log1p(jnp.exp(jnp.where(positive, -logits, logits)))


def weighted_cross_entropy_with_logits(labels: Any, logits: Any, pos_weight: Any, name: str | None = None) -> jax.Array:
    """Return `sigmoid_cross_entropy_with_logits` with positive examples weighted by `pos_weight`."""
    labels, logits = _both(labels, logits)
    weight = 1 + (convert_to_tensor(pos_weight, as_dtype(logits.dtype)) - 1) * labels
    tail = jnp.log1p(jnp.exp(-absolute(logits))) + jax.nn.relu(-logits)
    return (1 - labels) * logits + weight * tail


def _both(labels: Any, logits: Any) -> tuple[jax.Array, jax.Array]:
    if labels is None or logits is None:
        raise ValueError(f"Both labels and logits must be provided, got {labels} and {logits}.")
    logits, labels = same_type(logits, labels)
    if logits.shape != labels.shape:
        raise ValueError(f"`logits` and `labels` must have the same shape, got {logits.shape} and {labels.shape}.")
    return labels, logits


def log_poisson_loss(
    targets: Any, log_input: Any, compute_full_loss: bool = False, name: str | None = None
) -> jax.Array:
    """Return the log Poisson loss of each element; `compute_full_loss` adds Stirling's approximation."""
    log_input, targets = same_type(log_input, targets)
    loss = jnp.exp(log_input) - log_input * targets
    if not compute_full_loss:
        return loss
    safe = jnp.where(targets > 1, targets, 1)
    stirling = safe * jnp.log(safe) - safe + 0.5 * jnp.log(2 * jnp.pi * safe)
    return loss + jnp.where(targets > 1, stirling, 0)


def l2_loss(t: Any, name: str | None = None) -> jax.Array:
    """Return half the sum of squares."""
    return jnp.sum(jnp.square(require(convert_to_tensor(t), "f", "nn.l2_loss"))) / 2


def compute_average_loss(per_example_loss: Any, sample_weight: Any = None, global_batch_size: Any = None) -> jax.Array:
    """Return the sum of a replica's losses divided by the size of the global batch.

    See https://www.tensorflow.org/api_docs/python/tf/nn/compute_average_loss.

    Args:
        per_example_loss: Losses, of at least one axis.
        sample_weight: Weights of the examples.
        global_batch_size: Number of examples on all replicas: an integer. If None, the size of `per_example_loss`
            times the number of replicas, which is wrong for uneven batches.

    Raises:
        RuntimeError: Without `global_batch_size`, in a strategy's scope but outside of its replicas.
        ValueError: If `per_example_loss` is a scalar.
    """
    losses = convert_to_tensor(per_example_loss)
    if not losses.ndim:
        raise ValueError(
            "Invalid value passed for `per_example_loss`. Expected a tensor with at least rank 1. Received "
            f"per_example_loss={losses} with rank 0"
        )
    if global_batch_size is None:
        global_batch_size = losses.shape[0] * _replicas("compute_average_loss")
    if sample_weight is not None:
        losses = _weighted(losses, sample_weight)
    total = jnp.sum(losses)
    size = _batch_size(global_batch_size)
    total = total.astype(jnp.float64) if as_dtype(total.dtype).is_integer else total
    if isinstance(size, int):
        return total / size if size else jnp.zeros_like(total)
    size = size.astype(total.dtype)
    return jnp.where(size == 0, jnp.zeros_like(total), total / jnp.where(size == 0, jnp.ones_like(size), size))


def _batch_size(global_batch_size: Any) -> Any:
    """Return the size as a number, or as a tensor if it is not known yet."""
    size = convert_to_tensor(global_batch_size)
    if size.ndim:
        raise ValueError(f"global_batch_size must be scalar, got shape {tuple(size.shape)}.")
    if not as_dtype(size.dtype).is_integer:
        raise TypeError(f"global_batch_size must be an integer, got {as_dtype(size.dtype).name}.")
    if isinstance(size, Tracer):
        return size
    if int(size) < 0:
        raise invalid(f"global_batch_size must be non-negative, got {size}.")
    return int(size)


def _weighted(losses: jax.Array, sample_weight: Any) -> jax.Array:
    """Multiply by weights, whose shape is made to fit: one more axis of size 1 goes, missing ones come."""
    weight = cast(sample_weight, _dtypes.float32)
    dtype = as_dtype(losses.dtype)
    wide = losses if dtype.is_floating and dtype.size >= 4 else cast(losses, _dtypes.float32)
    if weight.ndim == wide.ndim + 1 and weight.shape[-1] == 1:
        weight = weight[..., 0]
    elif 0 < weight.ndim < wide.ndim:
        weight = weight.reshape(tuple(weight.shape) + (1,) * (wide.ndim - weight.ndim))
    return compute(jnp.multiply, wide, weight.astype(wide.dtype)).astype(dtype.dtype)


def scale_regularization_loss(regularization_loss: Any) -> jax.Array:
    """Return the sum of regularization losses divided by the number of replicas, which are to be summed.

    See https://www.tensorflow.org/api_docs/python/tf/nn/scale_regularization_loss.

    Raises:
        RuntimeError: In a strategy's scope but outside of its replicas.
    """
    number = _replicas("scale_regularization_loss")
    total = jnp.sum(convert_to_tensor(regularization_loss))
    return total / number if not as_dtype(total.dtype).is_integer else total.astype(jnp.float64) / number


def _replicas(function: str) -> int:
    """Return how many replicas share the step."""
    context, strategy = replica_context(), current_strategy()
    if context is not None:
        return context.num_replicas_in_sync
    if strategy is not None:
        raise RuntimeError(
            f"You are calling `{function}` in cross replica context, while it was expected to be called in replica "
            "context."
        )
    return 1
