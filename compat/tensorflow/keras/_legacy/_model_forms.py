"""Methods and attributes of Keras 2's models, layers, metrics and histories."""

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any, final

import keras
import numpy as np

from tfdist_jax.compat.tensorflow._functions._autograph._convert import converted_inside
from tfdist_jax.compat.tensorflow._names._old_forms import tell_old_form
from tfdist_jax.compat.tensorflow.keras._change import Addition, Change, Hook, instead

_HALF = 0.5


@final
class _Shape:
    """A layer's attribute that Keras 3 no longer has; an attribute that the program sets comes first."""

    def __init__(self, tensors: str) -> None:
        self._tensors = tensors

    def __get__(self, layer: Any, owner: Any = None) -> Any:
        if layer is None:
            return self
        found = keras.tree.map_structure(lambda tensor: tuple(tensor.shape), getattr(layer, self._tensors))
        if isinstance(layer, keras.layers.InputLayer):
            return [found] if isinstance(found, tuple) else found
        return found


def _predict_probabilities(self: keras.Sequential, x: Any, batch_size: int = 32, verbose: Any = 0) -> Any:
    """Return what the model gives for each row."""
    tell_old_form("`model.predict_proba`", "`model.predict`")
    return self.predict(x, batch_size=batch_size, verbose=verbose)


def _predict_classes(self: keras.Sequential, x: Any, batch_size: int = 32, verbose: Any = 0) -> Any:
    """Return the class of each row: the likeliest, or of one output whether it is more than a half."""
    tell_old_form("`model.predict_classes`", "`model.predict(x).argmax(-1)`")
    likely = np.asarray(self.predict(x, batch_size=batch_size, verbose=verbose))
    return likely.argmax(axis=-1) if likely.shape[-1] > 1 else (likely > _HALF).astype("int32")


def _reset_states(self: keras.Model) -> None:
    """Let stateful layers begin anew."""
    tell_old_form("`model.reset_states`", "`layer.reset_state()` of its stateful layers")
    for layer in self._flatten_layers(include_self=False):
        if hasattr(layer, "reset_state") and getattr(layer, "stateful", False):
            layer.reset_state()


def _trainable_state(self: keras.Layer) -> dict[Any, bool]:
    """Return which layers are trainable."""
    return {layer: layer.trainable for layer in self._flatten_layers()}


def _set_trainable_state(self: keras.Layer, state: dict[Any, bool]) -> None:
    """Make layers trainable as a state says, the outer ones first: they pass it on."""
    for layer in self._flatten_layers():
        if layer in state:
            layer.trainable = state[layer]


def _at_node(kind: str) -> Any:
    def method(self: keras.Layer, node_index: int) -> Any:
        """Return what the layer got, or gave, when it was called for this time."""
        node = self._inbound_nodes[node_index]
        tensors = node.input_tensors if kind == "input" else node.outputs
        return tensors[0] if len(tensors) == 1 else list(tensors)

    return method


def _shape_at_node(kind: str) -> Any:
    def method(self: keras.Layer, node_index: int) -> Any:
        """Return the shape of what the layer got, or gave, when it was called for this time."""
        found = _at_node(kind)(self, node_index)
        return keras.tree.map_structure(lambda tensor: tuple(tensor.shape), found)

    return method


def _of_its_own(kind: str) -> property:
    """Return what a Sequential model computes from, or gives, as Keras 2 did."""

    def read(self: keras.Sequential) -> Any:
        tensors = getattr(self, f"{kind}s")
        return tensors[0] if isinstance(tensors, list) and len(tensors) == 1 else tensors

    return property(read)


def _names(kind: str) -> property:
    """Return the names of what a Sequential model takes or gives, by which its targets and losses may be given."""

    def read(self: keras.Sequential) -> list[str]:
        if self._functional is not None:
            return getattr(self._functional, f"{kind}_names")
        if not self._layers:
            raise AttributeError(
                f"A Sequential model without layers has no `{kind}_names`.", name=f"{kind}_names", obj=self
            )
        return [self._layers[0 if kind == "input" else -1].name]

    return property(read)


def _init_metric_class(cls: type[keras.Metric], **kwargs: Any) -> None:
    """Let `result` of a metric be values where it returns one of its variables, as in Keras 2."""
    super(keras.Metric, cls).__init_subclass__(**kwargs)
    result = vars(cls).get("result")
    if isinstance(result, FunctionType):
        cls.result = _with_values(result)


def _with_values(compute: Callable[..., Any]) -> Callable[..., Any]:
    def value_of(leaf: Any) -> Any:
        return leaf.value if isinstance(leaf, keras.Variable) else leaf

    @functools.wraps(compute)
    def result(self: keras.Metric, *args: Any, **kwargs: Any) -> Any:
        return keras.tree.map_structure(value_of, converted_inside(compute)(self, *args, **kwargs))

    return result


def _building_layers(original: Callable[..., None]) -> Callable[..., None]:
    """Build a model's layers, too, where its class has no method for that: Keras 3 takes the model for built."""

    @functools.wraps(original)  # With the mark of what is not overridden.
    def build(self: keras.Model, input_shape: Any) -> None:
        is_built = all(layer.built for layer in self._flatten_layers(include_self=False))
        if is_built or input_shape is None or not self._build_by_run_for_single_pos_arg(input_shape):
            original(self, input_shape)

    return build


@final
class _History(dict[str, Any]):
    """What happened in each epoch, in which Keras 2's "lr" is found."""

    def __missing__(self, name: str) -> Any:
        if name != "lr" or "learning_rate" not in self:
            raise KeyError(name)
        tell_old_form('`history["lr"]`', '`history["learning_rate"]`')
        return self["learning_rate"]


def _noting_rates(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: keras.callbacks.History) -> None:
        original(self)
        self.history = _History()

    return __init__


def _to_yaml(self: keras.Model, **kwargs: Any) -> Any:
    raise RuntimeError("`to_yaml` has gone from Keras for its risks. Use `model.to_json`.")


CHANGES: tuple[Change, ...] = (
    *(
        Hook(keras.Sequential, kind, instead(_of_its_own(kind)), None, "Keras 3 has it in the plural alone; not called")
        for kind in ("input", "output")
    ),
    *(Addition(keras.Sequential, f"{kind}_names", _names(kind)) for kind in ("input", "output")),
    Hook(
        keras.Metric,
        "__init_subclass__",
        instead(classmethod(_init_metric_class)),
        None,
        "a variable as result is nothing that a compiled step returns; not called",
    ),
    Hook(keras.Model, "build", _building_layers, "self input_shape", "also the layers of a class without `build`"),
    Hook(keras.callbacks.History, "__init__", _noting_rates, "self", 'Keras 2\'s "lr"'),
    Addition(keras.Sequential, "predict_proba", _predict_probabilities),
    Addition(keras.Sequential, "predict_classes", _predict_classes),
    Addition(keras.Model, "reset_states", _reset_states),
    Addition(keras.Layer, "_get_trainable_state", _trainable_state),
    Addition(keras.Layer, "_set_trainable_state", _set_trainable_state),
    Addition(keras.Layer, "input_shape", _Shape("input")),
    Addition(keras.Layer, "output_shape", _Shape("output")),
    *(Addition(keras.Layer, f"get_{kind}_at", _at_node(kind)) for kind in ("input", "output")),
    *(Addition(keras.Layer, f"get_{kind}_shape_at", _shape_at_node(kind)) for kind in ("input", "output")),
    Addition(keras.Layer, "inbound_nodes", property(lambda self: self._inbound_nodes)),
    Addition(keras.Layer, "outbound_nodes", property(lambda self: self._outbound_nodes)),
    Addition(keras.Model, "to_yaml", _to_yaml),
)
