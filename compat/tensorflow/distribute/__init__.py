"""`tf.distribute`."""

from tfdist_jax import PerReplica as DistributedValues, ReduceOp as ReduceOp
from tfdist_jax.compat.tensorflow._context import ReplicaContext as ReplicaContext
from tfdist_jax.compat.tensorflow.distribute._cross_device_ops import (
    CrossDeviceOps as CrossDeviceOps,
    HierarchicalCopyAllReduce as HierarchicalCopyAllReduce,
    NcclAllReduce as NcclAllReduce,
    ReductionToOneDevice as ReductionToOneDevice,
)
from tfdist_jax.compat.tensorflow.distribute._current import (
    get_replica_context as get_replica_context,
    get_strategy as get_strategy,
    has_strategy as has_strategy,
    in_cross_replica_context as in_cross_replica_context,
)
from tfdist_jax.compat.tensorflow.distribute._input import (
    DistributedDataset as DistributedDataset,
    DistributedIterator as DistributedIterator,
    InputContext as InputContext,
)
from tfdist_jax.compat.tensorflow.distribute._strategy import (
    MirroredStrategy as MirroredStrategy,
    OneDeviceStrategy as OneDeviceStrategy,
    Strategy as Strategy,
)
