# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.distribute._configured_resolvers import (
    SimpleClusterResolver as SimpleClusterResolver,
    TFConfigClusterResolver as TFConfigClusterResolver,
    UnionResolver as UnionResolver,
)
from tfdist_jax.compat.tensorflow.distribute._platform_resolvers import (
    GCEClusterResolver as GCEClusterResolver,
    KubernetesClusterResolver as KubernetesClusterResolver,
    KubernetesExecutableLocation as KubernetesExecutableLocation,
    SlurmClusterResolver as SlurmClusterResolver,
)
from tfdist_jax.compat.tensorflow.distribute._resolver_base import (
    ClusterResolver as ClusterResolver,
    TPUClusterResolver as TPUClusterResolver,
)
