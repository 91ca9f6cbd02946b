"""Names and arguments of TensorFlow 2's Keras that Keras 3 has dropped and scripts still use."""

# Names are added to Keras's classes and modules here.
# pyright: reportAttributeAccessIssue=false

import functools
import inspect
import types
import warnings
from collections.abc import Callable
from typing import Any

import keras
import keras._tf_keras.keras as tf_keras

from tfdist_jax.compat.tensorflow.keras import _legacy_backend, _legacy_optimizers
from tfdist_jax.compat.tensorflow.keras._internals import BaseOptimizer, loss_module

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
    "CategoryEncoding CenterCrop Discretization Hashing IntegerLookup Normalization RandomContrast RandomCrop RandomFlip "
    "RandomHeight RandomRotation RandomTranslation RandomWidth RandomZoom Rescaling Resizing StringLookup TextVectorization"
)


def install() -> None:
    """Add the names."""
    _legacy_optimizers.install()
    BaseOptimizer.get_weights = lambda self: [keras.ops.convert_to_numpy(variable) for variable in self.variables]
    BaseOptimizer.set_weights = lambda self, weights: _set_weights(self, weights)
    keras.Metric.reset_states = keras.Metric.reset_state
    for name in ("fit", "evaluate", "predict"):
        setattr(keras.Model, f"{name}_generator", _taking_generators(getattr(keras.Model, name)))
    # `Reduction.AUTO`, under strategies, too: Keras 3 knows how many replicas there are.
    loss_module.standardize_reduction = _knowing_auto(loss_module.standardize_reduction)
    _add_functions()
    _add_layers()
    _add_backend()
    _add_errors()


def _set_weights(optimizer: Any, weights: Any) -> None:
    if len(weights) != len(optimizer.variables):
        raise ValueError(
            f"The optimizer has {len(optimizer.variables)} variables, got {len(weights)} weights. Call "
            "`optimizer.build(model.trainable_variables)` first, or use the weights of the same kind of optimizer."
        )
    for variable, value in zip(optimizer.variables, weights, strict=True):
        variable.assign(value)


def _taking_generators(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, generator: Any, *args: Any, **kwargs: Any) -> Any:
        """Do as the method without `_generator`, which takes generators itself."""
        name = original.__name__
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
        return original(self, generator, **kwargs)

    return method


def _knowing_auto(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def standardize_reduction(reduction: Any) -> Any:
        return original("sum_over_batch_size" if reduction == "auto" else reduction)

    return standardize_reduction


def _add_functions() -> None:
    for module in (keras.losses, keras.metrics, tf_keras.losses, tf_keras.metrics):
        for name, known in _FUNCTIONS.items():
            if not hasattr(module, name) and hasattr(tf_keras.losses, known):
                setattr(module, name, getattr(tf_keras.losses, known))


def _add_layers() -> None:
    found = {name: getattr(keras.layers, name) for name in _PREPROCESSING.split() if hasattr(keras.layers, name)}
    synchronized = functools.partial(keras.layers.BatchNormalization, synchronized=True)
    experimental = _namespace("layers.experimental", preprocessing=_namespace("preprocessing", **found))
    experimental.SyncBatchNormalization = synchronized
    tf_keras.layers.experimental = keras.layers.experimental = experimental
    legacy = _namespace("optimizers.legacy", **{n: getattr(_legacy_optimizers, n) for n in _legacy_optimizers.NAMES})
    legacy.Optimizer = keras.optimizers.Optimizer
    keras.optimizers.legacy = tf_keras.optimizers.legacy = legacy
    keras.optimizers.experimental = _namespace(
        "optimizers.experimental",
        **{name: value for name, value in vars(keras.optimizers).items() if inspect.isclass(value)},
    )
    precision = keras.mixed_precision
    precision.experimental = _namespace(
        "mixed_precision.experimental",
        Policy=precision.Policy,
        LossScaleOptimizer=precision.LossScaleOptimizer,
        set_policy=precision.set_global_policy,
        global_policy=precision.global_policy,
    )
    keras.callbacks.experimental = _namespace(
        "callbacks.experimental", BackupAndRestore=keras.callbacks.BackupAndRestore
    )


def _namespace(name: str, **members: Any) -> Any:
    module = types.ModuleType(f"keras.{name}")
    vars(module).update(members)
    return module


def _add_backend() -> None:
    _legacy_backend.install()
    backend = tf_keras.backend
    backend.learning_phase = _refusing("backend.learning_phase", "Pass `training=` to the layer or model instead.")
    backend.function = _refusing("backend.function", "Use `tf.function`, or `keras.Model(inputs, outputs)`.")


def _add_errors() -> None:
    keras.utils.multi_gpu_model = _refusing(
        "utils.multi_gpu_model", "Make and compile the model in `with tf.distribute.MirroredStrategy().scope():`."
    )
    keras.utils.GeneratorEnqueuer = _refusing("utils.GeneratorEnqueuer", "Use `keras.utils.PyDataset`.")
    tf_keras.estimator = _namespace(
        "estimator",
        model_to_estimator=_refusing(
            "estimator.model_to_estimator", "TensorFlow has no Estimators any more; use `fit`."
        ),
    )
    removed = _refusing("wrappers.scikit_learn", "Use `keras.wrappers.SKLearnClassifier` or `SKLearnRegressor`.")
    keras.wrappers.scikit_learn = _namespace("wrappers.scikit_learn", KerasClassifier=removed, KerasRegressor=removed)


def _refusing(name: str, instead: str) -> Callable[..., Any]:
    def removed(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"`tf.keras.{name}` is not in Keras 3. {instead}")

    return removed
