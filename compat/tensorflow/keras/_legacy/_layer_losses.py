"""`add_loss` and `add_metric` of tensors, in layers and on functional models, and the losses that Keras 2's steps were made of."""

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any, final

import keras
import keras._tf_keras.keras as tf_keras

from tfdist_jax.compat.tensorflow._names._old_forms import tell_old_form
from tfdist_jax.compat.tensorflow.keras._change import Addition, Change, Hook, instead
from tfdist_jax.compat.tensorflow.keras._internals import (
    BaseOptimizer,
    Functional,
    KerasTensor,
    Trainer,
    functional,
    in_symbolic_scope,
    loss_module,
    map_graph,
)


@keras.saving.register_keras_serializable("tensorflow")
class AddLoss(keras.layers.Layer):
    """A layer that adds its input to the losses of the model."""

    def call(self, inputs: Any) -> Any:
        """Add the loss."""
        self.add_loss(inputs)
        return inputs


@keras.saving.register_keras_serializable("tensorflow")
class AddMetric(keras.layers.Layer):
    """A layer that shows the mean of its input among the model's metrics.

    Args:
        metric_name: What it is called there.
    """

    def __init__(self, metric_name: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.metric_name = metric_name
        self.metric = keras.metrics.Mean(name=metric_name)

    def call(self, inputs: Any) -> Any:
        """Take note of the value."""
        if not in_symbolic_scope():
            self.metric.update_state(inputs)
        return inputs

    def get_config(self) -> dict[str, Any]:
        """Return the metric's name."""
        return {**super().get_config(), "metric_name": self.metric_name}


def _adding_losses(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def add_loss(self: keras.Layer, loss: Any, **kwargs: Any) -> None:
        kwargs.pop("inputs", None)
        losses = list(loss) if isinstance(loss, list | tuple) else [loss]
        if isinstance(self, keras.Model) and any(callable(one) for one in losses):
            raise NotImplementedError(
                "`add_loss` of a function is not in Keras 3. Use a regularizer of the weights, or add the loss in `call`."
            )
        if not any(isinstance(one, KerasTensor) for one in losses):
            original(self, loss)
            return
        tell_old_form("`model.add_loss` of a symbolic tensor", "`self.add_loss` in a layer's `call`")
        for one in losses:
            _continue(self, AddLoss()(one))

    return add_loss


def _add_metric(
    self: keras.Layer, value: Any, name: str | None = None, aggregation: str | None = None, **_: Any
) -> None:
    """Show the mean of a value among the model's metrics.

    Args:
        self: The layer or model.
        value: A tensor in `call`, or on a functional model a symbolic one. The result of a metric, which has taken note already,
            needs nothing more.
        name: The metric's name; needed unless the value is a metric's result.
        aggregation: "mean", or None.
    """
    tell_old_form("`add_metric`", "a `keras.metrics.Mean` of the layer's or the model's")
    if aggregation not in (None, "mean"):
        raise ValueError(f"`aggregation` must be None or 'mean'. Received: {aggregation!r}")
    if isinstance(value, KerasTensor) and isinstance(self, keras.Model):
        _continue(self, AddMetric(str(name or "metric"))(value))
        return
    own = {metric.name: metric for metric in self._metrics}
    if name is None and not own:
        raise ValueError(
            "Please provide a name for your metric, like `self.add_metric(tf.reduce_sum(inputs), name='mean_activation')`: "
            f"{type(self).__name__} has no metric whose result this could be."
        )
    if name is None or (name in own and name not in vars(self).get("_added_metrics", ())):
        return  # A metric's result.
    if name not in own:
        own[name] = _make_metric(self, name)
    if not in_symbolic_scope():
        own[name].update_state(value)


def _make_metric(layer: keras.Layer, name: str) -> keras.Metric:
    """Make a metric of a layer, which is built already where it is first called."""
    locked = layer._tracker.locked
    layer._tracker.unlock()
    metric = keras.metrics.Mean(name=name)
    layer._tracker.track(metric)
    if locked:
        layer._tracker.lock()
    object.__setattr__(layer, "_added_metrics", (*vars(layer).get("_added_metrics", ()), name))
    return metric


def _continue(model: Any, tensor: KerasTensor) -> None:
    """Let a functional model compute a tensor, too, whenever it is called."""
    if not hasattr(model, "_nodes_by_depth"):
        raise ValueError(f"Symbolic tensors are part of functional models; {type(model).__name__} is not one.")
    ends = [*vars(model).get("_more_ends", ()), tensor]
    nodes, nodes_by_depth, operations, operations_by_depth = map_graph(model.inputs, [*model.outputs, *ends])
    locked = model._tracker.locked
    model._tracker.unlock()
    graph = {
        "_nodes": nodes,
        "_nodes_by_depth": nodes_by_depth,
        "_operations": operations,
        "_operations_by_depth": operations_by_depth,
    }
    for name, value in {**graph, "_more_ends": ends}.items():
        object.__setattr__(model, name, value)
    for layer in model.layers:
        if layer not in model._layers:
            model._tracker.track(layer)
    if locked:
        model._tracker.lock()


def _find_ends(model: Any) -> list[KerasTensor]:
    """Return what layers give that add losses and metrics, of all that is computed from a model's inputs."""
    nodes: dict[int, Any] = {}
    operations = [tensor._keras_history.operation for tensor in model.inputs]
    for operation in operations:  # Which grows.
        new = {id(node): node for node in operation._outbound_nodes if id(node) not in nodes}
        nodes.update(new)
        operations += [node.operation for node in new.values()]
    return [end for node in nodes.values() if isinstance(node.operation, AddLoss | AddMetric) for end in node.outputs]


def _reading_ends(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def functional_from_config(*args: Any, **kwargs: Any) -> Any:
        model = original(*args, **kwargs)
        for end in _find_ends(model):
            _continue(model, end)
        return model

    return functional_from_config


def _own_objects(model: Any) -> dict[str, Any]:
    """Return the losses and metrics of the program's own that a model was compiled with, by name."""
    given = keras.tree.flatten(model._compile_config.config) if model.compiled else []
    functions = {one.__name__: one for one in given if isinstance(one, FunctionType)}
    classes = {
        type(one).__name__: type(one) for one in given if isinstance(one, keras.Loss | keras.Metric | BaseOptimizer)
    }
    own = functions | classes
    return {name: one for name, one in own.items() if not one.__module__.startswith("keras.")}


def _cloning_ends(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def clone_model(model: Any, *args: Any, **kwargs: Any) -> Any:
        with keras.saving.custom_object_scope(_own_objects(model)):
            clone = original(model, *args, **kwargs)
        if expected := len(vars(model).get("_more_ends", ())):
            ends = _find_ends(clone)
            if len(ends) != expected:
                raise ValueError(
                    f"The model adds {expected} losses and metrics, and what is computed from the clone's inputs {len(ends)}: other "
                    "models have these inputs. Clone without `input_tensors`."
                )
            for end in ends:
                _continue(clone, end)
        return clone

    return clone_model


@final
class CompiledLoss:
    """What `model.compiled_loss` is in a `train_step` of Keras 2: the loss that `compile` was given."""

    def __init__(self, model: keras.Model) -> None:
        self._model = model

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None, regularization_losses: Any = None) -> Any:
        """Return the loss, with the regularization losses, and let the metric "loss" take note of it."""
        tell_old_form("`compiled_loss` in a `train_step`", "`self.compute_loss(x, y, y_pred, sample_weight)`")
        model: Any = self._model
        losses = [] if model._compile_loss is None else [model._compile_loss(y_true, y_pred, sample_weight)]
        losses += [model._aggregate_additional_loss(loss) for loss in regularization_losses or ()]
        total = functools.reduce(keras.ops.add, losses) if losses else keras.ops.zeros(())
        shape: Any = keras.ops.shape(keras.tree.flatten(y_pred)[0])
        model._loss_tracker.update_state(unscaled(total), sample_weight=shape[0])
        return total

    @property
    def metrics(self) -> list[Any]:
        """The metric that takes note of the loss."""
        return [self._model._loss_tracker]


@final
class CompiledMetrics:
    """What `model.compiled_metrics` is in a `train_step` of Keras 2: the metrics that `compile` was given."""

    def __init__(self, model: keras.Model) -> None:
        self._model = model

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Let the metrics take note of a batch."""
        tell_old_form("`compiled_metrics` in a `train_step`", "`self.compute_metrics(x, y, y_pred, sample_weight)`")
        metrics: Any = self._model._compile_metrics
        if metrics is not None:
            metrics.update_state(y_true, y_pred, sample_weight)

    @property
    def metrics(self) -> list[Any]:
        """The metrics."""
        metrics: Any = self._model._compile_metrics
        return [] if metrics is None else list(metrics.metrics)


def unscaled(loss: Any) -> Any:
    """Return a replica's part of a loss as the loss of its rows, through the hook that knows of replicas."""
    return loss_module.unscale_loss_for_distribution(loss)


def _metrics_names(self: Any) -> list[str]:
    """Return the names of what `evaluate` returns, in its order."""
    known: list[str] = []
    for metric in self.metrics:
        inner = getattr(metric, "metrics", None)
        known += [one.name for one in inner] if isinstance(inner, list) else [metric.name]
    try:
        shown = dict.fromkeys(self.get_metrics_result())
    except (ValueError, AttributeError):  # Metrics by name are made when the model sees its first batch.
        shown = dict.fromkeys(metric.name for metric in self.metrics if getattr(metric, "metrics", None) is None)
    first = [name for name in known if name in shown]
    return first + sorted(name for name in shown if name not in first)


CHANGES: tuple[Change, ...] = (
    Hook(keras.Layer, "add_loss", _adding_losses, "self loss", "symbolic tensors, on functional models"),
    Hook(Functional, "add_loss", _adding_losses, "self loss", "symbolic tensors, which Keras 3 refuses"),
    Hook(
        functional, "functional_from_config", _reading_ends, "cls config", "what `add_loss` and `add_metric` were given"
    ),
    Hook(
        keras.models,
        "clone_model",
        _cloning_ends,
        "model input_tensors",
        "what `add_loss` and `add_metric` were given, and losses and metrics of the program's own",
        (tf_keras.models,),
    ),
    Hook(keras.Layer, "add_metric", instead(_add_metric), "self", "Keras 3's own refuses; not called"),
    Addition(Trainer, "compiled_loss", property(lambda model: CompiledLoss(model) if model.compiled else None)),
    Addition(Trainer, "compiled_metrics", property(lambda model: CompiledMetrics(model) if model.compiled else None)),
    Hook(
        Trainer,
        "metrics_names",
        lambda original: property(_metrics_names),
        None,
        "the names of what `evaluate` returns; Keras 3 has one name for all metrics of `compile`; not called",
    ),
)
