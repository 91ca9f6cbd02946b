"""`tf.distribute.cluster_resolver`."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "distribute._configured_resolvers": "SimpleClusterResolver TFConfigClusterResolver UnionResolver",
        "distribute._platform_resolvers": (
            "GCEClusterResolver KubernetesClusterResolver KubernetesExecutableLocation SlurmClusterResolver"
        ),
        "distribute._resolver_base": "ClusterResolver TPUClusterResolver",
    },
)
__dir__ = __getattr__.names
