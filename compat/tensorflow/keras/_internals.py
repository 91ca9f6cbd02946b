"""Every private Keras name this project uses or replaces; nothing else may import `keras.src`.

`tests/compat/keras/test_internals.py` holds a contract test per name: a Keras release that drops or changes one
fails the test that carries its name.
"""

# The variable class of the JAX backend: its reads and writes go through cells.
from keras.src.backend.jax.core import JaxVariable as JaxVariable

# The scope in which Keras maps variables to explicit values, or None.
from keras.src.backend.common.stateless_scope import get_stateless_scope as get_stateless_scope

# `apply` is where gradients of all replicas are summed.
from keras.src.optimizers.base_optimizer import BaseOptimizer as BaseOptimizer

# `next` is where each replica gets a seed of its own.
from keras.src.random.seed_generator import SeedGenerator as SeedGenerator

# `is_in_jax_tracing_scope` makes unseeded random draws an error while JAX traces.
from keras.src.utils import jax_utils as jax_utils
