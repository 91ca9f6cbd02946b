"""`tf.data`."""

from tfdist_jax.compat.tensorflow.data import experimental as experimental
from tfdist_jax.compat.tensorflow.data._dataset import Dataset as Dataset
from tfdist_jax.compat.tensorflow.data._iterator import DatasetIterator as Iterator
from tfdist_jax.compat.tensorflow.data._options import AUTOTUNE as AUTOTUNE, Options as Options
from tfdist_jax.compat.tensorflow.data._plan import (
    INFINITE as INFINITE_CARDINALITY,
    UNKNOWN as UNKNOWN_CARDINALITY,
)
