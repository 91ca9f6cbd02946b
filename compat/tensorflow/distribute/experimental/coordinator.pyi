# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.distribute._cluster_coordinator import (
    ClusterCoordinator as ClusterCoordinator,
    PerWorkerValues as PerWorkerValues,
    RemoteValue as RemoteValue,
)
