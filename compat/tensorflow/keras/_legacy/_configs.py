"""Configurations of models as Keras 2 wrote them, in JSON and in files, turned into those that Keras 3 reads.

Keras 2 named classes without their modules, or with modules that are gone; its layers had arguments that Keras 3's have not; nodes of
functional models were lists of names and numbers.
"""

import functools
import inspect
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

import keras

from tfdist_jax.compat.tensorflow.keras._internals import Functional
from tfdist_jax.compat.tensorflow.keras._legacy._layer_losses import AddLoss, AddMetric
from tfdist_jax.compat.tensorflow.keras._legacy._symbolic_calls import find_function, slice_tensor

# Where a name is looked for, by the key that it stands at, or that key's last word.
_BY_KEY: Final[Mapping[str, tuple[str, ...]]] = {
    "initializer": ("initializers",),
    "regularizer": ("regularizers",),
    "constraint": ("constraints",),
    "optimizer": ("optimizers",),
    "optimizer_config": ("optimizers.legacy", "optimizers"),
    "loss": ("losses",),
    "metrics": ("metrics", "losses"),
    "rate": ("optimizers.schedules",),
    "cell": ("layers",),
}
_LAYERS: Final = (
    "layers",
    "models",
    "initializers",
    "regularizers",
    "constraints",
    "optimizers.schedules",
    "losses",
    "metrics",
)
# What Keras 3's classes do not take and what had no effect there, by how their names begin; "" are all.
_WITHOUT_EFFECT: Final[Mapping[str, tuple[str, ...]]] = {
    "": ("batch_input_shape", "ragged", "is_legacy_optimizer", "fn"),
    "SpatialDropout": ("noise_shape", "trainable"),
    "Discretization": ("trainable",),
    "Random": ("rng_type",),
    "DepthwiseConv": ("groups", "filters", "kernel_initializer", "kernel_regularizer", "kernel_constraint"),
    **dict.fromkeys(("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"), ("groups",)),
    "SeparableConv": ("groups", "kernel_initializer", "kernel_regularizer", "kernel_constraint"),
    "ConvLSTM": ("rank", "groups"),
    "MultiHeadAttention": ("query_shape", "key_shape", "value_shape", "softmax_robust_masking"),
    "Embedding": ("input_length",),
    "Lambda": ("module", "function_type", "output_shape_type", "output_shape_module"),
    "AddLoss": ("unconditional",),
    "AddMetric": ("aggregation",),
}
_OWN: Final[Mapping[str, type]] = {"AddLoss": AddLoss, "AddMetric": AddMetric}
_RECURRENT: Final = ("RNN", "SimpleRNN", "LSTM", "GRU", "Bidirectional", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D")
# What a call of TensorFlow's in a functional model was, as far as functions in Keras 3 do not say it.
_REFUSED_CALLS: Final = ("TensorFlowOpLayer", "ClassMethod", "InstanceMethod", "InstanceProperty")
# Of `==` and `!=` Keras 2 lost what is compared with.
_OPERATORS: Final = {"add": "math.add"}
_FACADE: Final = "tfdist_jax.compat.tensorflow"

# Keras 3's `hard_sigmoid` has another slope.
HARD_SIGMOID: Final = "hard_sigmoid_of_keras_2"

Config = dict[str, Any]


def hard_sigmoid_of_keras_2(x: Any) -> Any:
    """Return 0.2 * x + 0.5 between 0 and 1, the activation of recurrent layers in Keras before 2.3."""
    return keras.ops.clip(0.2 * x + 0.5, 0.0, 1.0)


def is_of_keras_2(config: Any) -> bool:
    """Return whether a configuration of an object is one that Keras 2 has written."""
    if not isinstance(config, dict) or "class_name" not in config or "config" not in config:
        return False
    name, module = config["class_name"], config.get("module")
    if not isinstance(name, str) or name.startswith("__") or name == "function":
        return False
    if _is_custom(config):
        return _has_old_parts(config["config"])
    if ">" in (config.get("registered_name") or ""):
        return False  # Of the program's own classes, which are not there.
    return not module or ".engine." in module or _has_old_parts(config["config"])


def _has_old_parts(config: Any) -> bool:
    """Return whether the layers of a model, its inputs first, are Keras 2's."""
    layers = config.get("layers") if isinstance(config, dict) else None
    return isinstance(layers, list) and any(
        isinstance(layer, dict) and "batch_input_shape" in (layer.get("config") or {}) for layer in layers
    )


def upgrade(config: Any, places: tuple[str, ...] = _LAYERS) -> Any:
    """Return a configuration of Keras 2, of any structure, as one of Keras 3.

    Args:
        config: What JSON holds; it is not changed.
        places: The modules below `keras` that know the names of its classes.

    Raises:
        NotImplementedError: If the model calls a function of TensorFlow as a layer.
    """
    if isinstance(config, list):
        return [upgrade(one, places) for one in config]
    if not isinstance(config, dict):
        return config
    if isinstance(config.get("class_name"), str) and "config" in config:
        return _upgrade_object(config, places)
    return {key: _upgrade_value(key, value, places) for key, value in config.items()}


def _upgrade_value(key: str, value: Any, places: tuple[str, ...]) -> Any:
    last = key.rpartition("_")[2]
    if last == "activation":
        return _upgrade_activation(value)
    if key == "fn" and isinstance(value, str):
        return {"module": "builtins", "class_name": "function", "config": value, "registered_name": "function"}
    if key == "dtype" and isinstance(value, dict) and isinstance(value.get("config"), dict):
        return value["config"].get("name", value)  # A policy.
    return upgrade(value, _BY_KEY.get(key, _BY_KEY.get(last, places)))


def _upgrade_activation(value: Any) -> Any:
    name = value["config"] if isinstance(value, dict) and value.get("class_name") == "function" else value
    if name == "hard_sigmoid":
        return HARD_SIGMOID
    return {"softmax_v2": "softmax"}.get(name, value) if isinstance(name, str) else upgrade(value)


def _is_custom(config: Config) -> bool:
    names = (config.get("registered_name"), config["class_name"])
    return any(name and keras.saving.get_registered_object(name) is not None for name in names)


def _upgrade_object(config: Config, places: tuple[str, ...]) -> Config:
    name, inner = config["class_name"], config["config"]
    if name.startswith("__") or name == "function":
        return config
    if name in ("TFOpLambda", "SlicingOpLambda"):
        return {**_call_of(inner), **{key: config[key] for key in ("name", "inbound_nodes") if key in config}}
    if name in _REFUSED_CALLS:
        raise _refuse_call(f"{name}, {inner.get('name')}")
    if name.startswith("LossScaleOptimizer"):
        return _upgrade_loss_scaling(name, inner)
    if name == "Sequential":
        inner = inner if isinstance(inner, dict) else {"layers": inner}  # A list before Keras 2.2.3.
        inner = {"name": "sequential", **inner, "layers": _with_input(inner.get("layers") or [])}
    inner = {key: _upgrade_value(key, value, places) for key, value in (inner or {}).items()}
    compiled = _upgrade_compiled(config, inner)
    module, cls = _find_class(config, places, "layers" in inner)
    if cls is None:
        inner.pop("batch_input_shape", None)
        if "input_layers" in inner:
            _connect(inner)
        # What has no key for its module goes Keras's way for old files.
        named = {"module": None, "registered_name": name} if "layers" in places else {}
        return {**named, **config, "config": inner, **compiled}
    kept = {key: config[key] for key in ("name", "shared_object_id", "inbound_nodes") if key in config} | compiled
    if name == "Sequential" and "build_config" in config and not _has_input(inner["layers"]):
        kept["build_config"] = config["build_config"]  # All else is built by calls.
    return {
        "module": module,
        "class_name": cls.__name__,
        "config": _arguments(cls, inner),
        "registered_name": keras.saving.get_registered_name(cls),
        **kept,
    }


def _upgrade_compiled(config: Config, inner: Config) -> Config:
    """Return what a model was compiled with, if it was."""
    if not config.get("compile_config"):
        return {}
    given = {key: value for key, value in config["compile_config"].items() if value is not None}
    given.pop("jit_compile", None)  # False by default, as what was not compiled ran in TensorFlow.
    outputs = [name for name, *_ in inner.get("output_layers", ())]
    return {"compile_config": without_output_names(upgrade(given), outputs)}


def without_output_names(compiled: Config, outputs: Sequence[str]) -> Config:
    """Return what a model was compiled with, where Keras 2 began the names of metrics with those of its several outputs."""

    def shorten(metric: Any, output: str) -> Any:
        if isinstance(metric, list):
            return [shorten(one, output) for one in metric]
        config = metric.get("config") if isinstance(metric, dict) else None
        if not isinstance(config, dict) or not isinstance(config.get("name"), str):
            return metric
        return {**metric, "config": {**config, "name": config["name"].removeprefix(f"{output}_")}}

    shortened = dict(compiled)
    for kind in ("metrics", "weighted_metrics"):
        metrics = compiled.get(kind)
        if isinstance(metrics, dict) and "class_name" not in metrics:
            shortened[kind] = {output: shorten(one, output) for output, one in metrics.items()}
        elif isinstance(metrics, list) and len(metrics) == len(outputs) > 1:
            shortened[kind] = list(map(shorten, metrics, outputs))
    return shortened


def _upgrade_loss_scaling(name: str, inner: Config) -> Config:
    if not inner.get("dynamic", True):
        raise NotImplementedError(
            "The model was compiled with a loss scale that does not change, which Keras 3 does not have. Use `load_model(file, "
            "compile=False)`, and compile it."
        )
    places = _BY_KEY["optimizer" if name.endswith("V3") else "optimizer_config"]  # V3 scales what is not legacy.
    scales = {key: inner[key] for key in ("initial_scale", "dynamic_growth_steps") if key in inner}
    arguments = {"inner_optimizer": upgrade(inner["inner_optimizer"], places), **scales}
    return {
        "module": "keras.optimizers",
        "class_name": "LossScaleOptimizer",
        "config": arguments,
        "registered_name": "LossScaleOptimizer",
    }


def _call_of(inner: Config) -> Config:
    """Return the operation that calls a function of TensorFlow, of which Keras 2 kept the public name."""
    name = inner["function"]
    if name == "__operators__.getitem":
        where = f"{slice_tensor.__module__}:{slice_tensor.__name__}"
    else:
        parts = name.removeprefix("compat.v1.").split(".")
        module, _, attribute = _OPERATORS.get(
            parts[-1], "" if parts[0] == "__operators__" else ".".join(parts)
        ).rpartition(".")
        where = f"{_FACADE}.{module}".rstrip(".") + f":{attribute}"
        if find_function(where) is None:
            raise _refuse_call(f"`tf.{name}`")
    operation = {"name": inner["name"], "function": where}
    return {"module": None, "class_name": "TFOpLambda", "registered_name": "tensorflow>TFOpLambda", "config": operation}


def _refuse_call(what: str) -> NotImplementedError:
    return NotImplementedError(
        f"The model calls what tfdist_jax does not have as a layer: {what}. Build the model by the program's own code, and load its "
        "weights: `model.load_weights(file)`."
    )


def _find_class(config: Config, places: tuple[str, ...], is_model: bool) -> tuple[str, type | None]:
    """Return the module and the class that Keras 3 has for an object; no class for one of the program's own."""
    name = config["class_name"]
    if _is_custom(config) or ">" in (config.get("registered_name") or ""):
        return "", None
    if is_model and name in ("Functional", "Model"):
        return Functional.__module__, Functional
    if name in _OWN:
        return _OWN[name].__module__, _OWN[name]
    if config.get("module") == "keras.optimizers.legacy":
        places = ("optimizers.legacy",)
    elif name.startswith("Custom>") and "optimizers" in places:
        # Keras 2.11's; before, there was only what became legacy.
        places, name = ("optimizers",), name.removeprefix("Custom>")
    for place in places:
        cls = getattr(functools.reduce(getattr, place.split("."), keras), name, None)
        if inspect.isclass(cls):
            return f"keras.{place}", cls
    return "", None


def _with_input(layers: list[Any]) -> list[Any]:
    """Return the layers of a sequential model with the input that the first one's arguments tell."""
    shape = layers and (layers[0].get("config") or {}).get("batch_input_shape")
    if not shape or _has_input(layers):
        return layers
    return [{"class_name": "InputLayer", "config": {"batch_input_shape": shape}}, *layers]


def _has_input(layers: list[Any]) -> bool:
    return bool(layers) and layers[0]["class_name"] == "InputLayer"


def _arguments(cls: type, config: Config) -> Config:
    """Return what a class's `from_config` takes, of what Keras 2's took."""
    name = cls.__name__
    gone = {key for prefix, keys in _WITHOUT_EFFECT.items() if name.startswith(prefix) for key in keys}
    arguments = {
        key: value for key, value in config.items() if key not in gone or (key == "fn" and name == "MeanMetricWrapper")
    }
    if arguments.get("name", name) is None:
        del arguments["name"]  # Keras 3 names them.
    if name == "InputLayer":
        arguments["batch_shape"] = config.get("batch_input_shape", config.get("batch_shape"))
    elif name == "Functional":
        _connect(arguments)
    elif name == "BatchNormalization" and isinstance(config.get("axis"), list):
        [arguments["axis"]] = config["axis"]
    elif name == "LeakyReLU" and "alpha" in arguments:
        arguments["negative_slope"] = arguments.pop("alpha")
    elif name == "Lambda" and isinstance(config.get("function"), list):
        # Not run unless the program asks for it.
        code, defaults, closure = config["function"]
        held = {
            "code": code,
            "defaults": defaults and tuple(defaults),
            "closure": closure,
            "module": config.get("module"),
        }
        arguments["function"] = {"class_name": "__lambda__", "config": held}
    elif name in ("GRU", "GRUCell"):
        arguments.setdefault("reset_after", False)  # What it was before there was a choice.
    return arguments


def _connect(model: Config) -> None:
    """Turn the nodes of a functional model into Keras 3's."""
    # Models among the layers had a node of their own before those of their calls.
    nested = {layer["config"]["name"]: layer["class_name"] for layer in model["layers"] if "layers" in layer["config"]}
    for layer in model["layers"]:
        nodes = (_upgrade_node(node, layer["class_name"], nested) for node in layer["inbound_nodes"])
        layer["inbound_nodes"] = list(nodes)
    sequential = {name for name, kind in nested.items() if kind == "Sequential"}  # Keras 3 sees to the others.
    for key in ("input_layers", "output_layers"):
        model[key] = _map_tensors(model[key], lambda name, node, index: [name, node - (name in sequential), index])


def _upgrade_node(node: Any, layer: str, nested: Container[str]) -> Any:
    """Return a call of a layer, as names and numbers of the tensors that it takes, as arguments that hold these tensors."""
    if isinstance(node, dict) and "args" in node:
        return node

    def find(name: str, number: int, index: int, kwargs: Any = None) -> Any:
        named.update(kwargs or {})
        if name == "_CONSTANT_VALUE":
            return index
        history = [name, number - (name in nested), index]
        return {"class_name": "__keras_tensor__", "config": {"shape": [], "dtype": None, "keras_history": history}}

    named: Config = {}
    inputs = _map_tensors(node, find)
    if isinstance(inputs, list) and len(inputs) == 1:
        [inputs] = inputs
    arguments = {key: _map_tensors(value, find) for key, value in dict(named).items() if value is not None}
    if layer == "TFOpLambda":
        arguments.pop("name", None)
    if layer in _RECURRENT and isinstance(inputs, list):
        inputs, arguments["initial_state"] = inputs[0], inputs[1:]
    return {"args": [inputs], "kwargs": arguments}


def _map_tensors(value: Any, function: Callable[..., Any]) -> Any:
    """Return a structure with what the function makes of each [name of a layer, number of its node, index, ...]."""
    if isinstance(value, dict):
        return {key: _map_tensors(one, function) for key, one in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) in (3, 4) and isinstance(value[0], str) and isinstance(value[1], int):
        return function(*value)
    return [_map_tensors(one, function) for one in value]
