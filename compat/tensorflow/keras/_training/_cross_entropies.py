"""Cross entropies as on TensorFlow: of the logits that a softmax or sigmoid was given, which rounding leaves exact."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras

from tfdist_jax.compat.tensorflow.keras._change import Hook
from tfdist_jax.compat.tensorflow.keras._internals import backend
from tfdist_jax.compat.tensorflow.keras._variables._bounds import require_within
from tfdist_jax.compat.tensorflow.keras._variables._tensor_attributes import LOGITS


def _of_logits(activation: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Compute from the logits where an activation of Keras's has noted them on its probabilities."""

    @functools.wraps(original)
    def cross_entropy(target: Any, output: Any, from_logits: bool = False, **kwargs: Any) -> Any:
        logits = getattr(output, LOGITS, None)
        if logits is None:
            return original(target, output, from_logits=from_logits, **kwargs)
        if from_logits:
            warnings.warn(
                f"`{original.__name__}` received `from_logits=True`, but what it got are probabilities, made by a {activation} "
                "activation. It is computed from the logits behind them; leave one of the two out.",
                stacklevel=2,
            )
        return original(target, logits, from_logits=True, **kwargs)

    return cross_entropy


def _of_clipped(original: Callable[..., Any]) -> Callable[..., Any]:
    """Clip before probabilities are made to add up to one, which says what happens to outputs that are none; check labels."""

    # One operation for a tape, which would follow each of its parts.
    @functools.partial(jax.jit, static_argnums=(2, 3))
    def compute(labels: Any, output: Any, axis: int, least: float | None) -> Any:
        if least is not None:
            output = jnp.log(jnp.clip(output, least, 1 - least))
        losses = original(labels, output, from_logits=True, axis=axis)
        # What could not be looked at must not pass for a class without loss.
        inside = ((labels >= 0) & (labels < output.shape[axis])).reshape(losses.shape)
        return jnp.where(inside, losses, jnp.nan)

    @functools.wraps(original)
    def sparse_categorical_crossentropy(target: Any, output: Any, from_logits: bool = False, axis: int = -1) -> Any:
        output = jnp.asarray(output)
        labels = require_within(jnp.asarray(target, "int32"), output.shape[axis] if output.ndim else 0, "A label")
        return compute(labels, output, axis, None if from_logits else keras.config.epsilon())

    return sparse_categorical_crossentropy


def _make_hook(name: str, activation: str, parameters: str) -> Hook:
    reason = f"computed from the logits that a {activation} was given"
    return Hook(backend.nn, name, functools.partial(_of_logits, activation), parameters, reason)


CHANGES = (
    Hook(
        backend.nn,
        "sparse_categorical_crossentropy",
        _of_clipped,
        "target output from_logits axis",
        "outputs that are no probabilities give TensorFlow's loss; labels are checked",
    ),
    _make_hook("sparse_categorical_crossentropy", "softmax", "target output from_logits axis"),
    _make_hook("categorical_crossentropy", "softmax", "target output from_logits axis"),
    _make_hook("binary_crossentropy", "sigmoid", "target output from_logits"),
)
