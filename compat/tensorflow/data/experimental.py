"""`tf.data.experimental`."""

from typing import Any

from tfdist_jax.compat.tensorflow.data._options import (
    AUTOTUNE as AUTOTUNE,
    AutoShardPolicy as AutoShardPolicy,
    DistributeOptions as DistributeOptions,
)
from tfdist_jax.compat.tensorflow.data._plan import INFINITE, UNKNOWN

INFINITE_CARDINALITY = INFINITE
UNKNOWN_CARDINALITY = UNKNOWN


def cardinality(dataset: Any) -> Any:
    """Return the number of elements; -1 if infinite, -2 if unknown."""
    return dataset.cardinality()
