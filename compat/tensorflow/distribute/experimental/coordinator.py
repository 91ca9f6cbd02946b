"""`tf.distribute.experimental.coordinator`: older names."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {"distribute._cluster_coordinator": "ClusterCoordinator PerWorkerValues RemoteValue"},
)
__dir__ = __getattr__.names
