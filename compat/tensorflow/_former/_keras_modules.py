"""The modules of Keras 2, and where their names are today."""

import functools
from importlib.abc import Loader
from importlib.util import spec_from_loader
from typing import Any

from tfdist_jax.compat.tensorflow._former._views import View, has_module
from tfdist_jax.compat.tensorflow._names._old_forms import tell_old_form

_LAYERS = "tf.keras.layers"
_OPTIMIZERS = "tf.keras.optimizers.legacy tf.keras.optimizers"
_LAYER_FILES = (
    "activation advanced_activations attention convolutional convolutional_recurrent core cudnn_recurrent dense_attention "
    "einsum_dense embeddings local merge merging multi_head_attention noise normalization normalization.batch_normalization "
    "normalization.layer_normalization normalization_v2 pooling preprocessing recurrent recurrent_v2 regularization reshaping "
    "rnn rnn.lstm rnn.gru rnn_cell_wrapper_v2 serialization wrappers"
)
_OPTIMIZER_FILES = {
    "adadelta": "Adadelta",
    "adagrad": "Adagrad",
    "adam": "Adam",
    "adamax": "Adamax",
    "ftrl": "Ftrl",
    "gradient_descent": "SGD",
    "nadam": "Nadam",
    "rmsprop": "RMSprop",
}
_PREPROCESSING_FILES = (
    "category_encoding discretization hashing image_preprocessing integer_lookup normalization string_lookup "
    "text_vectorization"
)
_SAME = (
    "activations applications callbacks constraints datasets initializers losses metrics mixed_precision models "
    "preprocessing preprocessing.image preprocessing.sequence preprocessing.text regularizers utils"
)
_DATASETS = "boston_housing cifar10 cifar100 fashion_mnist imdb mnist reuters"
_APPLICATIONS = (
    "densenet efficientnet imagenet_utils inception_resnet_v2 inception_v3 mobilenet mobilenet_v2 mobilenet_v3 nasnet resnet "
    "resnet50 resnet_v2 vgg16 vgg19 xception"
)

KERAS_MODULES = {
    "": "tf.keras",
    **{name: f"tf.keras.{name}" for name in _SAME.split()},
    **{f"datasets.{name}": f"tf.keras.datasets.{name}" for name in _DATASETS.split()},
    **{f"applications.{name}": f"tf.keras.applications.{name}" for name in _APPLICATIONS.split()},
    "backend": "tf.keras.backend",
    "backend.tensorflow_backend": "tf.keras.backend",
    "backend_config": "tf.keras.backend",
    "callbacks_v1": "tf.keras.callbacks",
    "layers": _LAYERS,
    "layers.experimental.preprocessing": "tf.keras.layers.experimental.preprocessing",
    **{f"layers.{name}": _LAYERS for name in _LAYER_FILES.split()},
    **{
        f"layers.preprocessing.{name}": "tf.keras.layers.experimental.preprocessing"
        for name in _PREPROCESSING_FILES.split()
    },
    "engine": "tf.keras.layers tf.keras.models",
    "engine.base_layer": f"{_LAYERS} Node=tf.keras.Operation",
    "engine.base_preprocessing_layer": "PreprocessingLayer=tf.keras.layers.experimental.preprocessing.PreprocessingLayer",
    "engine.functional": "Functional=tf.keras.Model",
    "engine.input_layer": _LAYERS,
    "engine.input_spec": _LAYERS,
    "engine.keras_tensor": "KerasTensor=tf.keras.KerasTensor",
    "engine.network": "Network=tf.keras.Model get_source_inputs=tf.keras.utils.get_source_inputs",
    "engine.saving": "tf.keras.models",
    "engine.sequential": "tf.keras.models",
    "engine.topology": f"{_LAYERS} tf.keras.models Container=tf.keras.Model get_source_inputs=tf.keras.utils.get_source_inputs",
    "engine.training": "tf.keras.models",
    "initializers.initializers_v2": "tf.keras.initializers",
    "mixed_precision.loss_scale_optimizer": "tf.keras.mixed_precision",
    "mixed_precision.policy": "tf.keras.mixed_precision",
    "objectives": "tf.keras.losses",
    "optimizers": _OPTIMIZERS,
    "optimizers.schedules": "tf.keras.optimizers.schedules",
    "optimizer_v2.learning_rate_schedule": "tf.keras.optimizers.schedules",
    "optimizers.optimizer_v2": "OptimizerV2=tf.keras.optimizers.legacy.Optimizer",
    "optimizer_v2.optimizer_v2": "OptimizerV2=tf.keras.optimizers.legacy.Optimizer",
    **{
        f"{folder}.{file}": f"{name}=tf.keras.optimizers.legacy.{name}"
        for file, name in _OPTIMIZER_FILES.items()
        for folder in ("optimizer_v2", "optimizers.optimizer_v2")
    },
    **{f"optimizers.{file}_v2": f"{name}=tf.keras.optimizers.legacy.{name}" for file, name in _OPTIMIZER_FILES.items()},
    "preprocessing.image_dataset": "image_dataset_from_directory=tf.keras.utils.image_dataset_from_directory",
    "preprocessing.timeseries": "timeseries_dataset_from_array=tf.keras.utils.timeseries_dataset_from_array",
    "saving": "tf.keras.models",
    "saving.save": "tf.keras.models",
    "saving.model_config": "tf.keras.models",
    "utils.conv_utils": "_former._conv_utils",
    "utils.data_utils": "tf.keras.utils",
    "utils.generic_utils": "tf.keras.utils to_list=_former._former_names.to_list",
    "utils.io_utils": "tf.keras.utils",
    "utils.layer_utils": "get_source_inputs=tf.keras.utils.get_source_inputs count_params=_former._former_names.count_params",
    "utils.losses_utils": "ReductionV2=tf.keras.losses.Reduction",
    "utils.multi_gpu_utils": "multi_gpu_model=tf.keras.utils.multi_gpu_model",
    "utils.np_utils": "tf.keras.utils",
    "utils.tf_utils": "smart_cond=_former._former_names.smart_cond shape_type_conversion=_former._former_names.shape_type_conversion",
    "utils.training_utils": "multi_gpu_model=tf.keras.utils.multi_gpu_model",
    "utils.vis_utils": "tf.keras.utils",
    "wrappers.scikit_learn": "tf.keras.wrappers.scikit_learn",
}


def _message(wanted: str) -> str:
    return f"`{wanted}` is a name of Keras 2 that tfdist_jax does not know. Use the public name under `keras.`."


def _make_module(name: str) -> View:
    tell_old_form(f"`{name}`, a module of Keras 2", "the public names under `keras.`", "modules of Keras 2")
    return _view(name)


def _view(name: str) -> View:
    return View(name, _below(name), KERAS_MODULES, _message)


def find_keras_module(name: str) -> Any:
    """Return the import machinery's description of a module of Keras 2, such as `keras.utils.np_utils`, or None."""
    return (
        spec_from_loader(name, _Loader(), is_package=True)
        if name.startswith("keras.") and has_module(KERAS_MODULES, _below(name))
        else None
    )


def _below(name: str) -> str:
    """Return a module's name in the table; from Keras 2.13 on they were below `keras.src`."""
    return name.removeprefix("keras.").removeprefix("src.")


class _Loader(Loader):
    """Makes a module of Keras 2 for the import machinery."""

    def create_module(self, spec: Any) -> View:
        """Return the module, whose names load when they are asked for."""
        return _make_module(spec.name)

    def exec_module(self, module: Any) -> None:
        """Run nothing: the module has no code."""


@functools.cache
def keras_module(below: str) -> Any:
    """Return the module of Keras 2 with this name below `tensorflow.keras`, or None, for a program, which is told that it is old."""
    return _make_module(f"keras.{below}") if has_module(KERAS_MODULES, below) else None


def view_keras_module(below: str) -> Any:
    """Return the module of Keras 2 with this name, or None."""
    return _view(f"keras.{below}") if has_module(KERAS_MODULES, below) else None
