# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.distribute._cross_device_ops import (
    CrossDeviceOps as CrossDeviceOps,
    HierarchicalCopyAllReduce as HierarchicalCopyAllReduce,
    NcclAllReduce as NcclAllReduce,
    ReductionToOneDevice as ReductionToOneDevice,
)
from tfdist_jax.compat.tensorflow.distribute._current import (
    experimental_set_strategy as experimental_set_strategy,
    get_replica_context as get_replica_context,
    get_strategy as get_strategy,
    has_strategy as has_strategy,
    in_cross_replica_context as in_cross_replica_context,
)
from tfdist_jax.compat.tensorflow.distribute._extended import (
    StrategyExtended as StrategyExtended,
)
from tfdist_jax.compat.tensorflow.distribute._input import (
    DistributedDataset as DistributedDataset,
    InputContext as InputContext,
)
from tfdist_jax.compat.tensorflow.distribute._iterator import (
    DistributedIterator as DistributedIterator,
)
from tfdist_jax.compat.tensorflow.distribute._multi_worker import (
    MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy,
)
from tfdist_jax.compat.tensorflow.distribute._options import (
    InputOptions as InputOptions,
    InputReplicationMode as InputReplicationMode,
    RunOptions as RunOptions,
)
from tfdist_jax.compat.tensorflow.distribute._parameter_server import (
    ParameterServerStrategy as ParameterServerStrategy,
)
from tfdist_jax.compat.tensorflow.distribute._replica_context import (
    ReplicaContext as ReplicaContext,
)
from tfdist_jax.compat.tensorflow.distribute._server import (
    Server as Server,
)
from tfdist_jax.compat.tensorflow.distribute._strategy import (
    MirroredStrategy as MirroredStrategy,
    OneDeviceStrategy as OneDeviceStrategy,
    PerReplica as _DistributedValues,
    ReduceOp as ReduceOp,
    Strategy as Strategy,
)
from tfdist_jax.compat.tensorflow.distribute._tpu_strategy import (
    TPUStrategy as TPUStrategy,
)
from tfdist_jax.compat.tensorflow.distribute import (
    cluster_resolver as cluster_resolver,
    coordinator as coordinator,
    experimental as experimental,
)
DistributedValues = _DistributedValues
