"""Arguments of Keras 2's layers, optimizers and models that Keras 3 has dropped, or without which it does not do."""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, final

import keras

from tfdist_jax.compat.tensorflow._names._old_forms import tell_old_form
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape
from tfdist_jax.compat.tensorflow._variables._variable import VariableAggregation, VariableSynchronization
from tfdist_jax.compat.tensorflow.keras._change import Addition, Change, Hook, instead
from tfdist_jax.compat.tensorflow.keras._internals import DropoutRNNCell, JAXTrainer, Operation, Trainer, name_scope

_LOADING = ("workers", "use_multiprocessing", "max_queue_size")
# What BatchNormalization of Keras 2 took beside what it takes today.
_GONE = ("adjustment", "virtual_batch_size")

# What layers of Keras 2 took by position beside tensors.
_VALUES = (bool, int, float, str)

# The order of `add_weight`'s arguments in Keras 2.
_WEIGHT_ARGUMENTS = (
    "name",
    "shape",
    "dtype",
    "initializer",
    "regularizer",
    "trainable",
    "constraint",
    "use_resource",
    "synchronization",
    "aggregation",
)


def _replaces(original: Callable[..., Any]) -> Callable[[Any], Any]:
    """Name a constructor like the one it replaces, without pointing at it: Keras asks for its parameters in two ways."""

    def decorate(replacement: Any) -> Any:
        functools.update_wrapper(replacement, original)
        del replacement.__wrapped__
        return replacement

    return decorate


def _pooling_by_two(original: Callable[..., None]) -> Callable[..., None]:
    @_replaces(original)
    def __init__(self: Any, pool_size: Any = 2, *args: Any, **kwargs: Any) -> None:
        original(self, pool_size, *args, **kwargs)

    return __init__


def _taking_layer_arguments(original: Callable[..., None]) -> Callable[..., None]:
    """Take `weights=`, `batch_input_shape=` and `dynamic=`, which every layer of Keras 2 took."""

    @_replaces(original)
    def __init__(self: keras.Layer, *args: Any, **kwargs: Any) -> None:
        weights = kwargs.pop("weights", None)
        batch_shape = kwargs.pop("batch_input_shape", None)
        if kwargs.pop("dynamic", False):
            raise NotImplementedError(
                "Layers with `dynamic=True` are Keras 2's way to run Python. Use `model.compile(..., run_eagerly=True)`."
            )
        original(self, *args, **kwargs)
        if weights is not None:
            tell_old_form("`weights=` of a layer", "`layer.set_weights(weights)`")
            object.__setattr__(self, "_first_weights", list(weights))
        if batch_shape is not None:
            tell_old_form("`batch_input_shape=` of a layer", "`keras.Input(batch_shape=...)`")
            object.__setattr__(self, "_batch_input_shape", tuple(batch_shape))

    return __init__


def _setting_first_weights(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def _post_build(self: keras.Layer) -> None:
        original(self)
        weights = vars(self).get("_first_weights")
        if weights is not None:
            object.__delattr__(self, "_first_weights")
            self.set_weights(weights)

    return _post_build


def _adding_inputs(original: Callable[..., None]) -> Callable[..., None]:
    """Begin a Sequential model with the input that its first layer's arguments tell."""

    @functools.wraps(original)
    def add(self: keras.Sequential, layer: Any, *args: Any, **kwargs: Any) -> None:
        batch_shape = getattr(layer, "_batch_input_shape", None)
        if batch_shape is not None and not self._layers:
            original(self, keras.layers.InputLayer(batch_shape=batch_shape, dtype=layer.compute_dtype))
        original(self, layer, *args, **kwargs)

    return add


def _knowing_length(original: Callable[..., None]) -> Callable[..., None]:
    """Take `input_length` of an Embedding for the shape of its input, as in a Sequential model that it begins."""

    @_replaces(original)
    def __init__(self: Any, *args: Any, input_length: Any = None, **kwargs: Any) -> None:
        batch_shape = kwargs.get("batch_input_shape")
        original(self, *args, **kwargs)
        if input_length is not None and batch_shape is None:
            tell_old_form("`input_length=` of an Embedding", "`keras.Input((length,))` before it")
            lengths = input_length if isinstance(input_length, list | tuple) else (input_length,)
            self._input_shape_arg = tuple(lengths)

    return __init__


def _seeing_through_decorators(original: Callable[..., Any]) -> Any:
    """Let Keras find the arguments of an `__init__` that a decorator has wrapped, such as typeguard's, as Keras 2 had no need to."""

    @functools.wraps(original)
    def __new__(cls: Any, *args: Any, **kwargs: Any) -> Any:
        init = cls.__init__
        if hasattr(init, "__wrapped__") and not hasattr(init, "__signature__"):
            init.__signature__ = inspect.signature(init)
        return original(cls, *args, **kwargs)

    return staticmethod(__new__)


def _naming_metrics_first(original: Callable[..., Any]) -> Callable[..., Any]:
    """Take the name of a metric's variable first, as `add_weight("total", initializer="zeros")`."""

    @functools.wraps(original)
    def add_weight(self: keras.Metric, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], str):
            tell_old_form("`add_weight` with the name first", "`add_weight(shape=..., name=...)`")
            kwargs["name"], args = args[0], args[1:]
        for gone in ("aggregation", "synchronization"):  # Sums over replicas, as Keras 3 has it.
            _require_default(gone, kwargs.pop(gone, None))
        shape, *rest = args or (kwargs.pop("shape", None),)
        if not rest and kwargs.get("initializer") is None:  # Keras 2's choice by the type.
            kind = keras.backend.standardize_dtype(kwargs.get("dtype") or self.dtype)
            kwargs["initializer"] = "glorot_uniform" if keras.backend.is_float_dtype(kind) else "zeros"
        return original(self, (shape,) if isinstance(shape, int) else shape or (), *rest, **kwargs)

    return add_weight


def _require_default(name: str, value: Any) -> None:
    if value is not None and str(value).rpartition(".")[2].lower() not in ("sum", "on_read", "auto", "none"):
        raise NotImplementedError(
            f"`{name}={value}` of a metric's `add_weight`: what replicas have is added up. Use `keras.Variable(..., "
            "aggregation='only_first_replica')` for another rule."
        )


def _add_variable(self: keras.Layer, *args: Any, **kwargs: Any) -> Any:
    return self.add_weight(*args, **kwargs)


def _naming_first(original: Callable[..., Any]) -> Callable[..., Any]:
    """Take the weight's name first, as `add_weight("kernel", shape)`, and what Keras 3 has no use for."""

    @functools.wraps(original)
    def add_weight(self: keras.Layer, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], str):
            tell_old_form("`add_weight` with the name first", "`add_weight(shape=..., name=...)`")
            kwargs |= dict(zip(_WEIGHT_ARGUMENTS[: len(args)], args, strict=True))
            args = ()
        if kwargs.get("trainable", True) is None:
            del kwargs["trainable"]  # The default, which depends on how it is synchronized.
        if kwargs.pop("synchronization", None) is VariableSynchronization.ON_READ:
            if kwargs.get("trainable"):
                raise ValueError(
                    "A weight with `synchronization=ON_READ` has a value per replica: it is not trainable."
                )
            kwargs["trainable"] = False
        if isinstance(kwargs.get("aggregation"), VariableAggregation):
            kwargs["aggregation"] = kwargs["aggregation"].name.lower()
        if "/" in (kwargs.get("name") or ""):
            kwargs["name"] = kwargs["name"].replace("/", "_")
        for gone in ("use_resource", "partitioner", "collections", "getter"):
            kwargs.pop(gone, None)
        if "experimental_autocast" in kwargs:
            kwargs["autocast"] = kwargs.pop("experimental_autocast")
        return original(self, *args, **kwargs)

    return add_weight


def _accepting_fused(original: Callable[..., None]) -> Callable[..., None]:
    """Take `fused=`, whose results are the same; what Keras 3 has dropped is refused."""

    @_replaces(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("fused", None)
        if any(kwargs.pop(name, None) is not None for name in _GONE):
            raise NotImplementedError(
                "`virtual_batch_size` and `adjustment` of BatchNormalization are not in Keras 3. Use BatchNormalization "
                "without them, or GroupNormalization, which does not depend on the batch."
            )
        original(self, *args, **kwargs)

    return __init__


def _one_state(original: Callable[..., Any]) -> Callable[..., Any]:
    """Take `inputs` and `dtype`, with which a cell of one state gives that state, and not a list of it, as in Keras 2."""

    @functools.wraps(original)
    def get_initial_state(self: Any, inputs: Any = None, batch_size: Any = None, dtype: Any = None) -> Any:
        if isinstance(inputs, int):
            inputs, batch_size = None, inputs  # `get_initial_state(batch_size)`, today's form.
        if inputs is None and dtype is None:
            return original(self, batch_size)
        tell_old_form("`get_initial_state` of a cell with `inputs` or `dtype`", "`cell.get_initial_state(batch_size)`")
        if inputs is not None:
            batch_size, dtype = inputs.shape[0], inputs.dtype
        states = [keras.ops.cast(state, keras.backend.standardize_dtype(dtype)) for state in original(self, batch_size)]
        return states if len(states) > 1 else states[0]

    return get_initial_state


def _batch_first(original: Callable[..., None]) -> Callable[..., None]:
    @_replaces(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.pop("time_major", False):
            raise NotImplementedError(
                "`time_major=True` is not in Keras 3: give rows first, with `keras.ops.swapaxes`."
            )
        original(self, *args, **kwargs)

    return __init__


def _named_with_slashes(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, name: Any = None) -> None:
        if not isinstance(name, str) or "/" not in name:
            original(self, name)
            return
        tell_old_form("a layer's name with '/'", "names without it")
        original(self, name.replace("/", "_"))
        self.name = name

    return __init__


def _scoped_with_slashes(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, name: Any, *args: Any, **kwargs: Any) -> None:
        has_slash = isinstance(name, str) and "/" in name
        original(self, name.replace("/", "_") if has_slash else name, *args, **kwargs)
        self.name = name

    return __init__


def _loading_alone(original: Callable[..., Any]) -> Callable[..., Any]:
    """Take how many threads load data, which in Keras 3 is a property of the data."""

    @functools.wraps(original)
    def method(self: keras.Model, *args: Any, **kwargs: Any) -> Any:
        given = [name for name in _LOADING if name in kwargs]
        if given:
            tell_old_form(
                f"`{given[0]}=` of `Model.{original.__name__}`, without effect",
                "an argument of `keras.utils.PyDataset`",
            )
            for name in given:
                kwargs.pop(name)
        return original(self, *args, **kwargs)

    return method


def _resetting_metrics(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(self: keras.Model, *args: Any, **kwargs: Any) -> Any:
        if kwargs.pop("reset_metrics", False):
            tell_old_form(f"`Model.{original.__name__}(reset_metrics=True)`", "`model.reset_metrics()` before it")
            self.reset_metrics()
        return original(self, *args, **kwargs)

    return method


def _compiling(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def compile(self: keras.Model, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("target_tensors") is not None:
            raise NotImplementedError("`target_tensors` belong to TensorFlow 1's graphs. Give the targets to `fit`.")
        for gone in ("experimental_run_tf_function", "sample_weight_mode", "target_tensors", "distribute"):
            kwargs.pop(gone, None)
        if "experimental_steps_per_execution" in kwargs:
            kwargs["steps_per_execution"] = kwargs.pop("experimental_steps_per_execution")
        for name in ("metrics", "weighted_metrics"):
            if name in kwargs:
                kwargs[name] = _for_each_output(self, kwargs[name])
        self._compile_metrics = None  # Where no metrics are given, Keras leaves those of the last time.
        original(self, *args, **kwargs)

    return compile


def _for_each_output(model: keras.Model, metrics: Any) -> Any:
    """Return Keras 2's list of metrics for all outputs as one list for each; where it is that already, as it is."""
    count = len(getattr(model, "output_names", ()) or ())
    is_flat = isinstance(metrics, list | tuple) and not any(isinstance(one, list | tuple | dict) for one in metrics)
    if count < 2 or not is_flat or len(metrics) in (0, count):
        return metrics
    if any(isinstance(one, keras.Metric) for one in metrics):
        return metrics  # An object counts for one output.
    tell_old_form("one list of metrics for several outputs", "a list for each output")
    return [list(metrics) for _ in range(count)]


def _track(self: keras.Layer, trackable: Any, name: str, overwrite: bool = False) -> Any:
    """Count a layer among this one's, so that its variables are found."""
    if isinstance(trackable, keras.Layer) and not any(layer is trackable for layer in self._layers):
        self._tracker.add_to_store("layers", trackable)
    return trackable


def _naming_values(original: Callable[..., Any]) -> Callable[..., Any]:
    """Take `layer(x, training, mask)`: what is no tensor, and what follows, goes by name into a layer of Keras 3."""

    @functools.wraps(original)
    def __call__(self: keras.Layer, *args: Any, **kwargs: Any) -> Any:
        if len(args) > 1 and any(type(arg) in _VALUES for arg in args[1:]):
            args, kwargs = _with_named_values(self, args, kwargs)
        return original(self, *args, **kwargs)

    return __call__


def _with_named_values(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    first = next(i for i, arg in enumerate(args) if i and type(arg) in _VALUES)
    given = list(inspect.signature(layer.call).parameters.values())[first : len(args)]
    can_be_named = all(one.kind is one.POSITIONAL_OR_KEYWORD and one.name not in kwargs for one in given)
    if layer._allow_non_tensor_positional_args or len(given) < len(args) - first or not can_be_named:
        return args, kwargs  # Keras takes them, or says what is wrong.
    tell_old_form("values among the positional arguments of a layer", f"`{given[0].name}={args[first]!r}`")
    return args[:first], {one.name: arg for one, arg in zip(given, args[first:], strict=True)} | kwargs


def _add_update(self: keras.Layer, updates: Any) -> None:
    """Call those updates that are functions; others have happened.

    Args:
        self: The layer.
        updates: A function or what an assignment returns, or a list of them.
    """
    tell_old_form("`add_update`", "the assignment alone")
    for update in keras.tree.flatten(updates):
        if callable(update):
            update()


@final
class _Private:
    """A private attribute of Keras 2's layers: what a public one says, unless the class sets it itself."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self._read = read

    def __get__(self, layer: Any, owner: type | None = None) -> Any:
        return self if layer is None else self._read(layer)


def _build_attention(self: Any, query: Any, value: Any, key: Any = None) -> None:
    """Build attention for tensors."""
    self.build(query.shape, value.shape, value.shape if key is None else key.shape)


def _dropout_for_cell(self: Any, inputs: Any, training: Any, count: int = 1) -> None:
    """Return no mask for a cell without dropout."""
    _require_no_dropout(self, self.dropout)


def _recurrent_dropout_for_cell(self: Any, inputs: Any, training: Any, count: int = 1) -> None:
    """Return no mask for a cell without dropout of its states."""
    _require_no_dropout(self, self.recurrent_dropout)


def _require_no_dropout(cell: Any, rate: float) -> None:
    if rate:
        raise NotImplementedError(
            f"{type(cell).__name__} asks for dropout in Keras 2's form, `get_dropout_mask_for_cell`. Use a Dropout layer before it, or in "
            "the cell `keras.random.dropout(x, rate, seed=self.seed_generator)`."
        )


def _as_tensorflows(original: Callable[..., Any]) -> Callable[..., Any]:
    """Take the arguments that assignments to TensorFlow's variables have, and that say nothing about the value."""

    @functools.wraps(original)
    def method(self: Any, value: Any, use_locking: bool = False, name: Any = None, read_value: bool = True) -> Any:
        return original(self, value)

    return method


def _hooks() -> Iterator[Change]:
    layers = keras.layers
    for name in ("assign", "assign_add", "assign_sub"):
        yield Hook(keras.Variable, name, _as_tensorflows, "self value", "`use_locking`, `name` and `read_value`")
    for size in (1, 2, 3):
        pooling = getattr(layers, f"AveragePooling{size}D")
        yield Hook(
            pooling, "__init__", _pooling_by_two, "self pool_size strides padding", "`pool_size` is 2 by default"
        )
    for cell in (layers.GRUCell, layers.LSTMCell, layers.SimpleRNNCell):
        yield Hook(cell, "get_initial_state", _one_state, "self batch_size", "Keras 2's `inputs` and `dtype`")
    yield Hook(layers.RNN, "__init__", _batch_first, "self cell", "`time_major=False`")
    for name in ("fit", "evaluate", "predict"):
        yield Hook(JAXTrainer, name, _loading_alone, "self x", "`workers` and its like are the data's")
    for name in ("train_on_batch", "test_on_batch"):
        yield Hook(JAXTrainer, name, _resetting_metrics, "self x", "`reset_metrics`")


CHANGES: tuple[Change, ...] = (
    Addition(keras.KerasTensor, "get_shape", lambda self: TensorShape(self.shape)),
    Addition(keras.Layer, "_track_trackable", _track),
    Addition(keras.Layer, "_compute_dtype", _Private(lambda self: self.compute_dtype)),
    Addition(keras.Layer, "_compute_dtype_object", _Private(lambda self: as_dtype(self.compute_dtype))),
    Addition(keras.Layer, "_activity_regularizer", _Private(lambda self: self.activity_regularizer)),
    Addition(keras.layers.MultiHeadAttention, "_built_from_signature", _Private(lambda self: self.built)),
    Addition(keras.layers.MultiHeadAttention, "_build_from_signature", _build_attention),
    Addition(DropoutRNNCell, "get_dropout_mask_for_cell", _dropout_for_cell),
    Addition(DropoutRNNCell, "get_recurrent_dropout_mask_for_cell", _recurrent_dropout_for_cell),
    Hook(Operation, "__init__", _named_with_slashes, "self name", "names with '/'"),
    Hook(name_scope, "__init__", _scoped_with_slashes, "self name caller", "names of layers with '/'"),
    Addition(keras.Layer, "add_update", _add_update),
    Hook(keras.Layer, "__call__", _naming_values, "self", "values by position"),
    Hook(keras.Layer, "__init__", _taking_layer_arguments, "self", "`weights=`, `batch_input_shape=`"),
    Hook(keras.Layer, "_post_build", _setting_first_weights, "self", "`weights=` of any layer"),
    Hook(Operation, "__new__", _seeing_through_decorators, "cls", "`__init__` may be wrapped by a decorator"),
    Hook(keras.Metric, "add_weight", _naming_metrics_first, "self shape initializer", "the name first"),
    Hook(keras.Layer, "add_weight", _naming_first, "self", "the name first"),
    Hook(keras.Layer, "add_variable", instead(_add_variable), "self", "Keras 3's own refuses; not called"),
    Hook(keras.Sequential, "add", _adding_inputs, "self layer", "`batch_input_shape=`"),
    Hook(keras.layers.Embedding, "__init__", _knowing_length, "self input_dim output_dim", "`input_length=`"),
    Hook(keras.layers.BatchNormalization, "__init__", _accepting_fused, "self axis momentum", "`fused=`"),
    Hook(
        Trainer,
        "compile",
        _compiling,
        "self optimizer loss",
        "arguments of Keras 2, and its lists of metrics; none where none are given",
    ),
    *_hooks(),
)
