"""Every private Keras name this project uses or replaces; nothing else may import `keras.src`.

`tests/compat/keras/test_internals.py` holds a contract test per name: a Keras release that drops or changes one
fails the test that carries its name.

- `backend.compute_output_spec`: finds out shapes by running a layer on nothing; called through the module.
- `BaseOptimizer.apply`: where gradients of all replicas are summed. `_accumulated_gradients`, `_iterations`: its
  variables for gradient accumulation.
- `class_weight_to_sample_weights`, `DataAdapter`, `data_adapters.get_data_adapter`: how input is read.
- `get_keras_mask`, `set_keras_mask`: the mask that a layer has attached to its output.
- `get_stateless_scope`: the scope in which Keras maps variables to explicit values, or None.
- `jax_trainer._distribute_data`: sends a whole batch to the first device.
- `jax_utils.is_in_jax_tracing_scope`: makes unseeded random draws an error while JAX traces.
- `JAXTrainer`: `__init__`, the `make_*_function` methods, `jax_state_sync` with `_jax_state` and
  `_jax_state_synced`, and `_aggregate_additional_loss` are replaced; `compute_loss_and_updates` and
  `_update_metrics_variables` make up a training step.
- `JaxVariable`: its reads and writes go through cells.
- `loss_module.scale_loss_for_distribution`, `unscale_loss_for_distribution`: called through the module.
- `SeedGenerator.next`: where each replica gets a seed of its own.
"""

from keras.src import backend
from keras.src.backend.common.masking import get_keras_mask, set_keras_mask
from keras.src.backend.common.stateless_scope import get_stateless_scope
from keras.src.backend.jax import trainer as jax_trainer
from keras.src.backend.jax.core import JaxVariable
from keras.src.backend.jax.trainer import JAXTrainer
from keras.src.losses import loss as loss_module
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.random.seed_generator import SeedGenerator
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters.data_adapter import DataAdapter
from keras.src.trainers.data_adapters.data_adapter_utils import class_weight_to_sample_weights
from keras.src.utils import jax_utils

__all__ = [
    "BaseOptimizer",
    "DataAdapter",
    "JAXTrainer",
    "JaxVariable",
    "SeedGenerator",
    "backend",
    "class_weight_to_sample_weights",
    "data_adapters",
    "get_keras_mask",
    "get_stateless_scope",
    "jax_trainer",
    "jax_utils",
    "loss_module",
    "set_keras_mask",
]
