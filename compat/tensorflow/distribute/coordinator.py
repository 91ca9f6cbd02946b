"""`tf.distribute.coordinator`."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "distribute._cluster_coordinator": (
            "ClusterCoordinator PerWorkerValue=PerWorkerValues RemoteValue experimental_get_current_worker_index"
        )
    },
)
__dir__ = __getattr__.names
