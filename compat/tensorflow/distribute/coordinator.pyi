# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.distribute._cluster_coordinator import (
    ClusterCoordinator as ClusterCoordinator,
    PerWorkerValues as _PerWorkerValue,
    RemoteValue as RemoteValue,
    experimental_get_current_worker_index as experimental_get_current_worker_index,
)
PerWorkerValue = _PerWorkerValue
