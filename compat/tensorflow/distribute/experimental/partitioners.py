"""`tf.distribute.experimental.partitioners`."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {"distribute._partitioners": "FixedShardsPartitioner MaxSizePartitioner MinSizePartitioner Partitioner"},
)
__dir__ = __getattr__.names
