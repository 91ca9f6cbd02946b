"""Keras 2's functions, callbacks and metrics that Keras 3 has dropped, or whose arguments it has."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, final

import keras
import keras._tf_keras.keras as tf_keras
import numpy as np

from tfdist_jax.compat.tensorflow._names._old_forms import tell_old_form
from tfdist_jax.compat.tensorflow._names._older import SERIALIZED
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow.keras._change import Addition, Change, Hook
from tfdist_jax.compat.tensorflow.keras._internals import legacy_layers

_IMAGES = (keras.preprocessing.image, tf_keras.preprocessing.image)


def _convert(metric: keras.Metric, values: Any) -> Any:
    return keras.ops.cast(keras.ops.convert_to_tensor(values), metric.dtype)


@final
class MeanTensor(keras.Metric):
    """The weighted mean of tensors, element by element."""

    def __init__(self, name: str = "mean_tensor", dtype: Any = None, shape: Any = None) -> None:
        """Make a metric for tensors of a shape, by default that of the first one."""
        super().__init__(name=name, dtype=dtype)
        self.total: Any = None
        self.count: Any = None
        if shape is not None:
            self._make_variables(tuple(shape))

    def _make_variables(self, shape: tuple[int, ...]) -> None:
        self.total = self.add_weight(shape=shape, initializer="zeros", name="total")
        self.count = self.add_weight(shape=shape, initializer="zeros", name="count")

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        """Add values, each times its weight.

        Raises:
            ValueError: If their shape is not that of the first ones.
        """
        new = _convert(self, values)
        total, count = self._find_variables(tuple(new.shape))
        if tuple(new.shape) != tuple(total.shape):
            raise ValueError(f"MeanTensor has values of shape {tuple(total.shape)}, got {tuple(new.shape)}.")
        weights = _convert(self, 1.0 if sample_weight is None else sample_weight)
        weights = keras.ops.reshape(weights, (*weights.shape, *(1,) * (len(new.shape) - len(weights.shape))))
        total.assign_add(new * weights)
        count.assign_add(keras.ops.broadcast_to(weights, new.shape))

    def _find_variables(self, shape: tuple[int, ...]) -> tuple[Any, Any]:
        if self.total is None:
            self._make_variables(shape)
        return self.total, self.count

    def result(self) -> Any:
        """Return the means, 0 where there is no weight.

        Raises:
            ValueError: If there was no tensor, and no shape was given.
        """
        if self.total is None:
            raise ValueError("MeanTensor has no shape before its first `update_state`: give `shape=`.")
        return keras.ops.divide_no_nan(self.total, self.count)


@final
class MeanRelativeError(keras.metrics.Mean):
    """The mean of errors, each divided by a number of its own, 0 where that is 0."""

    def __init__(self, normalizer: Any, name: str | None = None, dtype: Any = None) -> None:
        """Make a metric that divides by `normalizer`, an array that broadcasts to predictions."""
        super().__init__(name=name or "mean_relative_error", dtype=dtype)
        self.normalizer = np.asarray(normalizer)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Add the errors of predictions."""
        true, predicted, normalizer = (_convert(self, values) for values in (y_true, y_pred, self.normalizer))
        errors = keras.ops.divide_no_nan(keras.ops.abs(true - predicted), normalizer)
        super().update_state(errors, sample_weight=sample_weight)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        return {**super().get_config(), "normalizer": self.normalizer.tolist()}


@final
class BaseLogger(keras.callbacks.Callback):
    """A callback that does nothing: what `fit` gives to callbacks is the mean over the epoch, which this made in Keras 2."""

    def __init__(self, stateful_metrics: Any = None) -> None:
        """Make the callback; which metrics are no means is known without it."""
        super().__init__()


def _taking_type(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def to_categorical(x: Any = None, num_classes: int | None = None, dtype: Any = None, **kwargs: Any) -> Any:
        if "y" in kwargs:
            tell_old_form("`to_categorical(y=...)`", "`to_categorical(x)`")
            x = kwargs.pop("y")
        if kwargs or x is None:
            raise TypeError(
                f"`to_categorical` takes `x`, `num_classes` and `dtype`; got {sorted(kwargs) or 'nothing'}."
            )
        classes = original(x, num_classes)
        if dtype is None:
            return classes
        tell_old_form("`to_categorical(dtype=)`", "`.astype` of what it returns")
        return classes.astype(as_dtype(dtype).as_numpy_dtype)

    return to_categorical


def _knowing_grayscale(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_img(path: Any, *args: Any, **kwargs: Any) -> Any:
        if "grayscale" in kwargs:
            tell_old_form("`load_img(grayscale=)`", "`color_mode=`")
            if kwargs.pop("grayscale"):
                kwargs["color_mode"] = "grayscale"
        return original(path, *args, **kwargs)

    return load_img


def _taking_legacy_format(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def serialize(*args: Any, use_legacy_format: bool = False, **kwargs: Any) -> Any:
        config = original(*args, **kwargs)
        if not use_legacy_format or not isinstance(config, dict):
            return config
        tell_old_form("`serialize(use_legacy_format=True)`", "`serialize` without it")
        if config["class_name"] == "function":
            return config["config"]
        return {key: config[key] for key in ("class_name", "config")}

    return serialize


def _reading_any_format(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def deserialize(*args: Any, use_legacy_format: bool = False, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    return deserialize


def _counting_in_any_way(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, count_mode: str = "samples", stateful_metrics: Any = None) -> None:
        original(self)

    return __init__


def _saving_anyway(original: Callable[..., None]) -> Callable[..., None]:
    """Take `save_before_preemption=`: it saves after SIGTERM in any case."""

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, save_before_preemption: bool = True, **kwargs: Any) -> None:
        original(self, *args, **kwargs)

    return __init__


def _refusing_sizes(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(self: Any, inputs: Any, training: bool = True) -> Any:
        if training:
            raise NotImplementedError(
                f"{type(self).__name__} draws the size of its output, and each size would be a program of its own. Use RandomZoom, which "
                "keeps the size, or Resizing in `Dataset.map`."
            )
        return original(self, inputs, training=False)

    return call


def _serializing() -> Iterator[Change]:
    for name in SERIALIZED:
        module, same = getattr(keras, name), (getattr(tf_keras, name),)
        same = () if same[0] is module else same
        config = "name" if name == "losses" else "config"
        yield Hook(module, "serialize", _taking_legacy_format, "", "`use_legacy_format=`", same)
        yield Hook(module, "deserialize", _reading_any_format, f"{config} custom_objects", "`use_legacy_format=`", same)


CHANGES: tuple[Change, ...] = (
    Addition(tf_keras, "saving", keras.saving),
    *(Addition(place, "MeanTensor", MeanTensor) for place in (keras.metrics, tf_keras.metrics)),
    *(Addition(place, "MeanRelativeError", MeanRelativeError) for place in (keras.metrics, tf_keras.metrics)),
    Addition(keras.callbacks, "BaseLogger", BaseLogger),
    Hook(keras.utils, "to_categorical", _taking_type, "x num_classes", "`y=` and `dtype=`"),
    Hook(keras.utils, "load_img", _knowing_grayscale, "path", "`grayscale=`", _IMAGES),
    Hook(
        keras.callbacks.ProgbarLogger, "__init__", _counting_in_any_way, "self", "`count_mode=` and `stateful_metrics=`"
    ),
    *(
        Hook(cls, "call", _refusing_sizes, "self inputs training", "sizes that are drawn")
        for cls in (legacy_layers.RandomHeight, legacy_layers.RandomWidth)
    ),
    Hook(keras.callbacks.BackupAndRestore, "__init__", _saving_anyway, "self backup_dir", "`save_before_preemption=`"),
    *_serializing(),
)
