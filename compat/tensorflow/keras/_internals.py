"""Every private Keras name this project touches; nothing else may import `keras.src`.

What is replaced is listed in `_hooks`, and why beside each replacement. Used as they are:

- `BaseOptimizer._accumulated_gradients`, `_iterations`: its variables for gradient accumulation;
  `_trainable_variables`: what it was built for; `_backend_update_step`: the update, given the rate.
- `Adagrad._accumulators`, `RMSprop._velocities`, `_average_gradients`, `Nadam._momentums`, `_velocities`, `_u_product`,
  `BaseOptimizer._get_variable_index`: the state that older formulas work on.
- `BackupAndRestore._weights_path`, `_prev_weights_path`, `_current_epoch`, `_last_batch_seen`, and `_initial_epoch` of the model.
- `class_weight_to_sample_weights`, `DataAdapter`: how input is read.
- `dataset_utils`: makers of datasets, which import TensorFlow when they run.
- `EpochIterator._current_iterator`, `_steps_seen`, `_num_batches`: where an epoch is.
- `Functional._nodes`, `_nodes_by_depth`, `_operations`, `_operations_by_depth`, as `map_graph` makes them: what a functional model
  computes; `Operation._inbound_nodes`, `_outbound_nodes`, `KerasTensor._keras_history`: where a symbolic tensor comes from and goes;
  `in_symbolic_scope`: that there are no values.
- `Functional._standardize_inputs`, `_outputs_struct`, `_convert_input_args`, `Node.arguments`, `input_tensors`, `is_input`, and
  `functional.operation_fn`: how it is run, one call after another; `layer_module.CallContext`: whether the layers that are called train.
- `export_utils.get_input_signature`, `make_input_spec`: what a model takes.
- `get_keras_mask`, `set_keras_mask`: the mask that a layer has attached to its output.
- `get_stateless_scope`: the scope in which Keras maps variables to explicit values, or None.
- `global_state`'s "current_call_ctx": whether the layer that is called trains; "custom_objects_scope_dict": a program's own objects by
  name, where a file is loaded; the scopes in `_variables/_keras_scopes`.
- `global_seed_generator`: what unseeded draws come from.
- `is_default`: tells a callback's own methods from those that do nothing.
- `JAXTrainer._compute_loss`, `_loss_tracker`, `_call_has_training_arg`: what a training step is made of; `_jax_state`:
  where Keras's loops hold what steps return beside logs, under a `keras.distribution` the variables' values;
  `_jax_state_synced`: whether a callback has put that into the variables.
- `JaxVariable._value`, `_layout`, `_maybe_autocast`, `_initializer`: what a variable holds.
- `Layer._trainable_variables`, `_non_trainable_variables`, `_seed_generators`, `Metric._variables`: what they hold, for
  checkpoints; Keras's other lists of the same things are left out there by name.
- `lazy_tensorflow`: the real TensorFlow, loaded when it is asked for something.
- `legacy_h5_format.load_model_from_hdf5`, `save_weights_to_hdf5_group`, `load_weights_from_hdf5_group` and `_by_name`,
  `load_attributes_from_hdf5_group`: files without suffix, and Keras 2's files.
- `saving_utils.compile_args_from_training_config`, `serialization_lib.SafeModeScope`: what a model in HDF5 is compiled with, and whether
  code in files may run; `keras_option_scope`: whether configurations go without modules; `Model._compile_config`: what it tells of itself.
- `Layer._build_by_run_for_single_pos_arg`: builds by a symbolic call, and says whether it could.
- `Sequential._functional`: the functional model that it is, once it is built.
- `Layer._losses_override`, `_clear_losses`: what its layers have added; `Model._compile_metrics`: None without metrics;
  `loss_module.apply_mask`: what masks make of weights.
- `LossFunctionWrapper._fn_kwargs`, `MeanMetricWrapper._fn_kwargs`: the arguments of their functions.
- `saving_lib._model_from_config`, `_load_assets_from_dict`: the parts of a model in a folder of `OrbaxCheckpoint`.
- `register_tree_node_class`: a class of tuples that Keras looks into.
- `TrackedDict`, `TrackedList`: what Keras makes of a dictionary or list that is an attribute.
- `TensorBoard._init_profile_batch`: takes the batches to profile.

`tests/compat/keras/test_internals.py` holds a contract test for each: a Keras release that drops or changes one fails
the test that carries its name.
"""

from typing import Any, Protocol

import keras
from keras.src import activations, backend, initializers, losses, metrics, saving
from keras.src.backend import config as backend_config
from keras.src.backend.common import dtypes, global_state
from keras.src.backend.common.keras_tensor import KerasTensor
from keras.src.backend.common.masking import get_keras_mask, set_keras_mask
from keras.src.backend.common.name_scope import name_scope
from keras.src.backend.common.stateless_scope import get_stateless_scope
from keras.src.backend.common.symbolic_scope import in_symbolic_scope
from keras.src.backend.jax import trainer as jax_trainer
from keras.src.backend.jax.core import JaxVariable
from keras.src.backend.jax.trainer import JAXTrainer
from keras.src.callbacks import orbax_checkpoint, tensorboard
from keras.src.callbacks.callback_list import CallbackList
from keras.src.export import export_utils
from keras.src.layers import layer as layer_module
from keras.src.layers.core import masking
from keras.src.layers.preprocessing import (
    discretization,
    feature_space,
    hashed_crossing,
    hashing,
    index_lookup,
    integer_lookup,
    normalization,
    string_lookup,
    text_vectorization,
)
from keras.src.layers.rnn.dropout_rnn_cell import DropoutRNNCell
from keras.src.legacy import backend as legacy_backend, layers as legacy_layers
from keras.src.legacy.saving import legacy_h5_format, saving_utils
from keras.src.legacy.saving.saving_options import keras_option_scope
from keras.src.losses import loss as loss_module
from keras.src.models import functional
from keras.src.models.functional import Functional
from keras.src.ops.function import map_graph
from keras.src.ops.operation import Operation
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.random.seed_generator import SeedGenerator, global_seed_generator
from keras.src.saving import saving_api, saving_lib, serialization_lib
from keras.src.trainers import data_adapters
from keras.src.trainers.compile_utils import CompileLoss, CompileMetrics
from keras.src.trainers.data_adapters.data_adapter import DataAdapter
from keras.src.trainers.data_adapters.data_adapter_utils import class_weight_to_sample_weights
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter
from keras.src.trainers.epoch_iterator import EpochIterator
from keras.src.trainers.trainer import Trainer
from keras.src.tree import register_tree_node_class
from keras.src.utils import (
    audio_dataset_utils,
    backend_utils,
    dataset_utils,
    file_utils,
    image_dataset_utils,
    jax_utils,
    module_utils,
    python_utils,
    rng_utils,
    text_dataset_utils,
    tf_utils,
    timeseries_dataset_utils,
    traceback_utils,
)
from keras.src.utils.module_utils import tensorflow as lazy_tensorflow
from keras.src.utils.python_utils import is_default
from keras.src.utils.tracking import TrackedDict, TrackedList


class Backup(Protocol):
    """A `BackupAndRestore` in a training: then it has the model, and the parameters of `fit`."""

    model: keras.Model
    params: dict[str, Any]
    save_freq: int | str
    _model: keras.Model
    _weights_path: str
    _prev_weights_path: str
    _training_metadata_path: str
    _current_epoch: int
    _last_batch_seen: int
    _batches_seen_since_last_saving: int

    def _save_model(self) -> None: ...


__all__ = [
    "BaseOptimizer",
    "CallbackList",
    "CompileLoss",
    "CompileMetrics",
    "DataAdapter",
    "DropoutRNNCell",
    "EpochIterator",
    "Functional",
    "JAXTrainer",
    "JaxVariable",
    "KerasTensor",
    "Operation",
    "PyDatasetAdapter",
    "SeedGenerator",
    "TrackedDict",
    "TrackedList",
    "Trainer",
    "activations",
    "audio_dataset_utils",
    "backend",
    "backend_config",
    "backend_utils",
    "class_weight_to_sample_weights",
    "data_adapters",
    "dataset_utils",
    "discretization",
    "dtypes",
    "export_utils",
    "feature_space",
    "file_utils",
    "functional",
    "get_keras_mask",
    "get_stateless_scope",
    "global_seed_generator",
    "global_state",
    "hashed_crossing",
    "hashing",
    "image_dataset_utils",
    "in_symbolic_scope",
    "index_lookup",
    "initializers",
    "integer_lookup",
    "is_default",
    "jax_trainer",
    "jax_utils",
    "keras_option_scope",
    "layer_module",
    "lazy_tensorflow",
    "legacy_backend",
    "legacy_h5_format",
    "legacy_layers",
    "loss_module",
    "losses",
    "map_graph",
    "masking",
    "metrics",
    "module_utils",
    "name_scope",
    "normalization",
    "orbax_checkpoint",
    "python_utils",
    "register_tree_node_class",
    "rng_utils",
    "saving",
    "saving_api",
    "saving_lib",
    "saving_utils",
    "serialization_lib",
    "set_keras_mask",
    "string_lookup",
    "tensorboard",
    "text_dataset_utils",
    "text_vectorization",
    "tf_utils",
    "timeseries_dataset_utils",
    "traceback_utils",
]
