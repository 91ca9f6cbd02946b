"""`tf.data.experimental`."""

from tfdist_jax.compat.tensorflow._names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "data._dataset": "cardinality",
        "data._options": "AUTOTUNE AutoShardPolicy DistributeOptions",
        "data._plan": "INFINITE_CARDINALITY=INFINITE UNKNOWN_CARDINALITY=UNKNOWN",
    },
)
__dir__ = __getattr__.names
