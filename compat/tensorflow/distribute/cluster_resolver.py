"""`tf.distribute.cluster_resolver`."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "distribute._cluster_resolvers": "SimpleClusterResolver TFConfigClusterResolver UnionResolver",
        "distribute._platform_resolvers": (
            "GCEClusterResolver KubernetesClusterResolver KubernetesExecutableLocation SlurmClusterResolver"
        ),
        "distribute._resolvers": "ClusterResolver TPUClusterResolver",
    },
)
__dir__ = __getattr__.names
