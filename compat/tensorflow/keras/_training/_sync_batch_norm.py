"""`BatchNormalization(synchronized=True)`: the moments of all replicas' rows together, which Keras has for TensorFlow only."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import keras
from keras import ops
from keras.layers import BatchNormalization

from tfdist_jax.compat.tensorflow._platform._context import replica_context
from tfdist_jax.compat.tensorflow.keras._change import Hook


def meets_other_replicas(model: keras.Model) -> bool:
    """Tell whether layers of a model need the other replicas' rows while they train."""
    return any(getattr(layer, "synchronized", False) for layer in model._flatten_layers())


def _accepting_synchronized(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(self: BatchNormalization, *args: Any, synchronized: bool = False, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.synchronized = bool(synchronized)

    # Keras makes a layer's configuration from it.
    setattr(init, "__signature__", inspect.signature(original))  # noqa: B010
    return init


def _over_replicas(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def moments(self: Any, inputs: Any, mask: Any) -> tuple[Any, Any]:
        context = replica_context()
        if not self.synchronized:
            # What a layer has learned stays when it sees no rows, which have no moments.
            return original(self, inputs, mask) if inputs.size else (self.moving_mean.value, self.moving_variance.value)
        axes = tuple(self._reduction_axes)
        weights: Any
        if mask is None:
            weights = jnp.ones([size if i in axes else 1 for i, size in enumerate(inputs.shape)], inputs.dtype)
        else:
            weights = ops.cast(ops.broadcast_to(ops.expand_dims(mask, -1), inputs.shape), inputs.dtype)
        count = jnp.broadcast_to(jnp.sum(weights, axes), inputs.shape[self.axis : self.axis + 1] or inputs.shape[-1:])
        mean, squares = _of_rows(inputs, weights, count, axes)
        if context is None:
            return mean, squares / jnp.maximum(count, 1)
        # Distances from each replica's own mean: sums of squares would cancel out where the mean is large.
        counts, means, sums = context.all_gather(jnp.stack([count, mean, squares])[None], axis=0).swapaxes(0, 1)
        total = jnp.maximum(jnp.sum(counts, 0), 1)
        mean = jnp.sum(counts * means, 0) / total
        return mean, (jnp.sum(sums, 0) + jnp.sum(counts * (means - mean) ** 2, 0)) / total

    return moments


def _of_rows(inputs: Any, weights: Any, count: Any, axes: tuple[int, ...]) -> tuple[Any, Any]:
    """Return the mean of this replica's rows, and the sum of squared distances from it; zeros without rows."""
    # Chosen, not multiplied: what is masked may be no number.
    inputs = jnp.where(weights > 0, inputs, 0)
    mean = jnp.sum(inputs, axes, keepdims=True) / jnp.maximum(jnp.sum(weights, axes, keepdims=True), 1)
    squares = jnp.sum((inputs - mean) ** 2 * weights, axes)
    return mean.reshape(count.shape), squares


CHANGES = (
    Hook(
        BatchNormalization, "__init__", _accepting_synchronized, "self axis momentum", "`synchronized` on this backend"
    ),
    Hook(
        BatchNormalization, "_moments", _over_replicas, "self inputs mask", "moments of all replicas' rows, and of none"
    ),
)
