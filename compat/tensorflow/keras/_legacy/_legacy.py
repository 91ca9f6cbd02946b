"""Names and arguments of TensorFlow 2's Keras that Keras 3 has dropped and scripts still use."""

import functools
import inspect
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import keras
import keras._tf_keras.keras as tf_keras
import numpy as np

from tfdist_jax.compat.tensorflow.keras._change import Addition, Change, Hook, instead
from tfdist_jax.compat.tensorflow.keras._feature_layers import SequenceFeatures
from tfdist_jax.compat.tensorflow.keras._internals import (
    BaseOptimizer,
    activations,
    backend,
    initializers,
    loss_module,
    losses,
    metrics,
)
from tfdist_jax.compat.tensorflow.keras._legacy import _legacy_optimizers, _old_schedules
from tfdist_jax.compat.tensorflow.keras._legacy._sidecar_evaluator import SidecarEvaluator

# What Keras 3 calls otherwise, or keeps for itself.
_FUNCTIONS = {
    "mean_squared_error": "mse",
    "mean_absolute_error": "mae",
    "mean_absolute_percentage_error": "mape",
    "mean_squared_logarithmic_error": "msle",
    "kl_divergence": "kld",
    "log_cosh": "logcosh",
}
# TensorFlow 2's folder for layers that turn data into tensors.
_PREPROCESSING = (
    "CategoryEncoding CenterCrop Discretization HashedCrossing Hashing IntegerLookup Normalization RandomContrast RandomCrop RandomFlip "
    "RandomHeight RandomRotation RandomTranslation RandomWidth RandomZoom Rescaling Resizing StringLookup TextVectorization"
)


def _get_weights(self: BaseOptimizer) -> list[Any]:
    return [keras.ops.convert_to_numpy(variable) for variable in self.variables]


def _set_weights(self: BaseOptimizer, weights: Any) -> None:
    if len(weights) != len(self.variables):
        raise ValueError(
            f"The optimizer has {len(self.variables)} variables, got {len(weights)} weights. Call "
            "`optimizer.build(model.trainable_variables)` first, or use the weights of the same kind of optimizer."
        )
    pairs = list(zip(self.variables, map(np.asarray, weights), strict=True))
    for variable, value in pairs:
        if tuple(variable.shape) != value.shape:
            raise ValueError(
                f"{variable.path} has shape {tuple(variable.shape)}, got a weight of shape {value.shape}. Use the weights of the same "
                "kind of optimizer, of a model with the same variables."
            )
    for variable, value in pairs:
        variable.assign(value)


def _taking_generators(name: str) -> Callable[..., Any]:
    def method(self: keras.Model, generator: Any, *args: Any, **kwargs: Any) -> Any:
        """Do as the method without `_generator`, which takes generators itself."""
        warnings.warn(f"`Model.{name}_generator` is deprecated: use `Model.{name}`.", DeprecationWarning, stacklevel=2)
        for argument in ("max_queue_size", "workers", "use_multiprocessing"):
            kwargs.pop(argument, None)  # A property of the data, `PyDataset`, in Keras 3.
        if name == "fit":
            kwargs.setdefault("shuffle", False)  # Generators give the order themselves.
        if name == "fit" and args:
            kwargs["steps_per_epoch"], args = args[0], args[1:]
        elif args:
            kwargs["steps"], args = args[0], args[1:]
        if args:
            raise TypeError(f"`{name}_generator` takes further arguments by name.")
        return getattr(self, name)(generator, **kwargs)

    return method


def _knowing_auto(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def standardize_reduction(reduction: Any) -> Any:
        return original("sum_over_batch_size" if reduction == "auto" else reduction)

    return standardize_reduction


def _functions() -> Iterator[Addition]:
    for module in (keras.losses, keras.metrics, tf_keras.losses, tf_keras.metrics):
        for name, known in _FUNCTIONS.items():
            if not hasattr(module, name) and hasattr(tf_keras.losses, known):
                yield Addition(module, name, getattr(tf_keras.losses, known))


def _namespace(name: str, **members: Any) -> Any:
    module = types.ModuleType(f"keras.{name}")
    vars(module).update(members)
    return module


def _experimental_layers() -> Any:
    found = {name: getattr(keras.layers, name) for name in _PREPROCESSING.split() if hasattr(keras.layers, name)}
    return _namespace(
        "layers.experimental",
        preprocessing=_namespace("preprocessing", PreprocessingLayer=keras.layers.Layer, **found),
        EinsumDense=keras.layers.EinsumDense,
        RandomFourierFeatures=_refusing(
            "layers.experimental.RandomFourierFeatures", "Write it as a layer of your own."
        ),
        SyncBatchNormalization=functools.partial(keras.layers.BatchNormalization, synchronized=True),
    )


def _optimizers() -> Iterator[Change]:
    formulas = {name: getattr(_legacy_optimizers, name) for name in _legacy_optimizers.NAMES}
    legacy = _namespace("optimizers.legacy", **formulas, Optimizer=keras.optimizers.Optimizer)
    reason = "TensorFlow 2's formulas and arguments"
    yield Hook(keras.optimizers, "legacy", instead(legacy), None, reason, (tf_keras.optimizers,))
    classes = {name: value for name, value in vars(keras.optimizers).items() if inspect.isclass(value)}
    yield Addition(keras.optimizers, "experimental", _namespace("optimizers.experimental", **classes))


def _require_dynamic(loss_scale: Any) -> None:
    if loss_scale not in (None, "auto", "dynamic"):
        raise NotImplementedError(
            f"`loss_scale={loss_scale!r}`: Keras 3 finds the scale itself. Use `keras.optimizers.LossScaleOptimizer(optimizer, "
            "initial_scale=...)`, with a large `dynamic_growth_steps` if it is to stay."
        )


def _make_policy(name: str, loss_scale: Any = "auto") -> Any:
    """Return a policy of types; with "mixed_float16" `compile` scales losses."""
    _require_dynamic(loss_scale)
    return keras.mixed_precision.Policy(name)


def _make_loss_scaling(optimizer: Any, loss_scale: Any = "dynamic") -> Any:
    """Return an optimizer that scales losses."""
    _require_dynamic(loss_scale)
    return keras.mixed_precision.LossScaleOptimizer(optimizer)


def _experimental() -> Any:
    schedules = keras.optimizers.schedules
    gone = {
        "LinearModel": "Use a Dense layer.",
        "WideDeepModel": "Add the outputs of two models.",
        "PeepholeLSTMCell": "Use `keras.layers.LSTMCell`, or a cell of your own.",
    }
    return _namespace(
        "experimental",
        CosineDecay=schedules.CosineDecay,
        CosineDecayRestarts=schedules.CosineDecayRestarts,
        LinearCosineDecay=_old_schedules.LinearCosineDecay,
        NoisyLinearCosineDecay=_old_schedules.NoisyLinearCosineDecay,
        SequenceFeatures=SequenceFeatures,
        SidecarEvaluator=SidecarEvaluator,
        **{name: _refusing(f"experimental.{name}", remedy) for name, remedy in gone.items()},
    )


def _experimental_precision() -> Any:
    precision = keras.mixed_precision
    return _namespace(
        "mixed_precision.experimental",
        Policy=_make_policy,
        LossScaleOptimizer=_make_loss_scaling,
        set_policy=precision.set_global_policy,
        global_policy=precision.global_policy,
    )


def _removed(owner: Any, name: str, remedy: str) -> Addition:
    return Addition(owner, name.rpartition(".")[2], _refusing(name, remedy))


def _removed_namespaces() -> Iterator[Addition]:
    estimator = _refusing("estimator.model_to_estimator", "TensorFlow has no Estimators any more; use `fit`.")
    yield Addition(tf_keras, "estimator", _namespace("estimator", model_to_estimator=estimator))
    wrapper = _refusing("wrappers.scikit_learn", "Use `keras.wrappers.SKLearnClassifier` or `SKLearnRegressor`.")
    wrappers = _namespace("wrappers.scikit_learn", KerasClassifier=wrapper, KerasRegressor=wrapper)
    yield Addition(keras.wrappers, "scikit_learn", wrappers)


def _refusing(name: str, remedy: str) -> Callable[..., Any]:
    def removed(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"`tf.keras.{name}` is not in Keras 3. {remedy}")

    return removed


def _taking_custom_objects(original: Callable[..., Any]) -> Callable[..., Any]:
    """Find by name also what the program has put into `keras.utils.get_custom_objects()`, as in Keras 2."""

    @functools.wraps(original)
    def get(identifier: Any) -> Any:
        if isinstance(identifier, str):
            registered = keras.saving.get_registered_object(identifier)
            if registered is not None:
                return registered() if inspect.isclass(registered) else registered
        return original(identifier)

    return get


def _adding_up(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let a scope add its objects to those of the scopes around it, as in Keras 2."""

    @functools.wraps(original)
    def __enter__(self: Any) -> Any:
        original(self)
        own, outer = self.custom_objects, self.backup
        if outer:
            self.custom_objects = {**outer, **own}
            original(self)
            self.custom_objects, self.backup = own, outer
        return self

    return __enter__


def _custom_objects() -> Iterator[Change]:
    scope = keras.saving.custom_object_scope
    yield Hook(scope, "__enter__", _adding_up, "self", "Keras 3's hides the objects of the scopes around it")
    for module, public in (
        (activations, "activations"),
        (initializers, "initializers"),
        (losses, "losses"),
        (metrics, "metrics"),
    ):
        elsewhere = (getattr(keras, public), getattr(tf_keras, public))
        yield Hook(module, "get", _taking_custom_objects, "identifier", "names of the program's own objects", elsewhere)


def _image_and_text() -> Iterator[Change]:
    """Give `keras.preprocessing`, which programs of Keras 2 import by itself, what `tf.keras.preprocessing` has."""
    for part in ("image", "sequence", "text"):
        old: Any = getattr(tf_keras.preprocessing, part)
        if not hasattr(keras.preprocessing, part):
            continue  # Found as a module of Keras 2.
        for name, value in vars(old).items():
            if name[0] != "_" and not inspect.ismodule(value) and not hasattr(getattr(keras.preprocessing, part), name):
                yield Addition(getattr(keras.preprocessing, part), name, value)


_layers = _experimental_layers()
_keras_experimental = _experimental()


def _in_any_case(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = None) -> Any:
        return original(x, pad_width, mode.lower(), constant_values)

    return pad


CHANGES: tuple[Change, ...] = (
    Addition(BaseOptimizer, "get_weights", _get_weights),
    Hook(
        BaseOptimizer,
        "set_weights",
        instead(_set_weights),
        "self weights",
        "also weights of optimizers inside it; not called",
    ),
    Hook(backend.numpy, "pad", _in_any_case, "x pad_width mode", "`mode` in capitals, as TensorFlow has it"),
    Addition(keras.Metric, "reset_states", keras.Metric.reset_state),
    *(Addition(keras.Model, f"{name}_generator", _taking_generators(name)) for name in ("fit", "evaluate", "predict")),
    # Under strategies, too: Keras 3 knows how many replicas there are.
    Hook(loss_module, "standardize_reduction", _knowing_auto, "reduction", "`Reduction.AUTO` is the mean"),
    *_functions(),
    Addition(keras.layers, "experimental", _layers),
    Addition(tf_keras.layers, "experimental", _layers),
    *_optimizers(),
    Addition(keras.mixed_precision, "experimental", _experimental_precision()),
    Addition(
        keras.callbacks,
        "experimental",
        _namespace("callbacks.experimental", BackupAndRestore=keras.callbacks.BackupAndRestore),
    ),
    _removed(
        keras.utils,
        "utils.multi_gpu_model",
        "Make and compile the model in `with tf.distribute.MirroredStrategy().scope():`.",
    ),
    *(Addition(module, "SidecarEvaluator", SidecarEvaluator) for module in (keras.utils, tf_keras.utils)),
    _removed(keras.utils, "utils.GeneratorEnqueuer", "Use `keras.utils.PyDataset`."),
    *(
        _removed(keras.utils, f"utils.{name}", "Use `keras.utils.PyDataset`, and give it to `fit`.")
        for name in ("OrderedEnqueuer", "SequenceEnqueuer")
    ),
    *_removed_namespaces(),
    *_custom_objects(),
    *(Addition(module, "experimental", _keras_experimental) for module in (keras, tf_keras)),
    *_image_and_text(),
)
