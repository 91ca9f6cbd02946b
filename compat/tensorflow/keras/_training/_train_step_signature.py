"""The two forms of a step that users write: TensorFlow's `train_step(self, data)` and JAX's `(self, state, data)`."""

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import jax
import keras

from tfdist_jax.compat.tensorflow._gradients._gradient_tape import GradientTape
from tfdist_jax.compat.tensorflow.keras._change import Hook
from tfdist_jax.compat.tensorflow.keras._internals import JAXTrainer
from tfdist_jax.compat.tensorflow.keras._training._loss_scaling import unscale_loss


def train_step(self: keras.Model, data: Any) -> dict[str, Any]:
    """Train on a batch, in TensorFlow's form: change the model's variables and return its metrics."""
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    optimizer = self.optimizer
    with GradientTape() as tape:
        y_pred, loss = forward(self, x, y, sample_weight, training=True)
        scaled = optimizer.scale_loss(loss) if optimizer else loss
    weights = self.trainable_weights
    if weights:
        optimizer.apply_gradients(zip(tape.gradient(scaled, weights), weights, strict=True))
    else:
        warnings.warn("The model does not have any trainable weights.", stacklevel=2)
    return self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)


def test_step(self: keras.Model, data: Any) -> dict[str, Any]:
    """Evaluate a batch, in TensorFlow's form: update the model's metrics and return them."""
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    y_pred, _ = forward(self, x, y, sample_weight, training=False)
    return self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)


def predict_step(self: keras.Model, data: Any) -> Any:
    """Return the model's outputs for a batch, in TensorFlow's form."""
    x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
    return _outputs(self, x, training=False)


def forward(model: keras.Model, x: Any, y: Any, sample_weight: Any, *, training: bool) -> tuple[Any, Any]:
    """Return the model's outputs and its loss, which the model's own metric takes note of."""
    y_pred = _outputs(model, x, training=training)
    loss: Any = model._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training)
    model._loss_tracker.update_state(unscale_loss(loss), sample_weight=jax.tree.leaves(x)[0].shape[0])
    return y_pred, loss


def _outputs(model: keras.Model, x: Any, *, training: bool) -> Any:
    return model(x, training=training) if model._call_has_training_arg else model(x)


def _in_both_forms(own: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Run `own` where a step is given the data alone; `is_tensorflow_form` goes on seeing Keras's parameters."""

    @functools.wraps(original)
    def step(self: keras.Model, *args: Any, **kwargs: Any) -> Any:
        return (own if len(args) + len(kwargs) == 1 else original)(self, *args, **kwargs)

    return step


def is_overridden(model: keras.Model, name: str) -> bool:
    """Tell whether the model's class brings its own step."""
    return getattr(type(model), name) is not getattr(JAXTrainer, name)


def is_tensorflow_form(model: keras.Model, name: str) -> bool:
    """Tell whether a step takes the data alone and changes the model's variables itself."""
    parameters = inspect.signature(getattr(model, name)).parameters.values()
    needed = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    return len(needed) == 1 and needed[0].kind is not inspect.Parameter.VAR_POSITIONAL


def takes_state(model: keras.Model, name: str) -> bool:
    """Tell whether a step runs in JAX's form, which takes values and returns new ones: the class brings it, or a part of Keras's."""
    if is_overridden(model, name):
        return not is_tensorflow_form(model, name)
    return any(getattr(type(model), part) is not getattr(keras.Model, part) for part in _STATELESS_PARTS)


# What Keras's own steps in JAX's form are made of.
_STATELESS_PARTS = ("compute_loss_and_updates", "stateless_call", "stateless_compute_loss")


CHANGES = tuple(
    Hook(
        JAXTrainer,
        own.__name__,
        functools.partial(_in_both_forms, own),
        "self state data",
        "`super()`'s step also takes the data alone, as under TensorFlow; not called then",
    )
    for own in (train_step, test_step, predict_step)
)
