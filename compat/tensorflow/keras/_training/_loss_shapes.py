"""Targets that are not as the predictions: of another shape, a ValueError that names both; one for several outputs; by name."""

import functools
from collections.abc import Callable
from typing import Any

import keras

from tfdist_jax.compat.tensorflow.keras._change import Hook
from tfdist_jax.compat.tensorflow.keras._internals import CompileLoss, CompileMetrics

# Of JAX's messages, which are of several types.
_MISMATCH = "ncompatible shapes for broadcasting"


def _naming_shapes(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __call__(self: keras.Loss, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        try:
            return original(self, y_true, y_pred, sample_weight)
        except (TypeError, ValueError) as error:
            if _MISMATCH not in str(error):
                raise
            given = {"targets": y_true, "predictions": y_pred, "weights of samples": sample_weight}
            text = ", ".join(f"{name} {_shapes(value)}" for name, value in given.items() if value is not None)
            raise ValueError(
                f"Dimensions must be equal: the loss {self.name!r} got {text}. Give targets of the shape of the model's outputs."
            ) from error

    return __call__


def _shapes(value: Any) -> Any:
    return keras.tree.map_structure(lambda leaf: str(tuple(getattr(leaf, "shape", ()))), value)


def _not_taken_apart(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let one target for several outputs be one, also if it has as many rows as there are outputs; find one by its name."""

    @functools.wraps(original)
    def call(self: CompileLoss, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        if not keras.tree.is_nested(y_pred):
            y_true, sample_weight = (_of_one_output(self.output_names, given) for given in (y_true, sample_weight))
        sample_weight = _by_output(self.output_names, y_pred, sample_weight)
        is_one = y_true is not None and keras.tree.is_nested(y_pred) and not keras.tree.is_nested(y_true)
        return original(self, [y_true] if is_one else y_true, y_pred, sample_weight)

    return call


def _of_one_output(names: Any, given: Any) -> Any:
    """Return what is given by the name of a model's only output."""
    return given[names[0]] if isinstance(given, dict) and list(given) == names else given


def _by_output(names: Any, y_pred: Any, sample_weight: Any) -> Any:
    """Return weights that are given by the names of several outputs in the outputs' order; there may be none for some."""
    if not isinstance(y_pred, list | tuple) or not isinstance(sample_weight, dict) or not names:
        return sample_weight
    if unknown := sample_weight.keys() - set(names):
        raise ValueError(
            f"`sample_weight` has {sorted(unknown)}, which are no outputs of the model: it has {list(names)}."
        )
    return [sample_weight.get(name) for name in names]


def _weighing_by_name(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def update_state(self: CompileMetrics, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        original(self, y_true, y_pred, _by_output(self.output_names, y_pred, sample_weight))

    return update_state


CHANGES = (
    Hook(
        CompileMetrics,
        "update_state",
        _weighing_by_name,
        "self y_true y_pred sample_weight",
        "weights of samples by the names of outputs, also of some of them",
    ),
    Hook(
        CompileLoss,
        "call",
        _not_taken_apart,
        "self y_true y_pred sample_weight",
        "a tensor is a sequence of its rows in JAX, of which Keras gives one to each output; targets of one output by name",
    ),
    Hook(
        keras.Loss,
        "__call__",
        _naming_shapes,
        "self y_true y_pred sample_weight",
        "errors name the shapes, as ValueError",
    ),
)
