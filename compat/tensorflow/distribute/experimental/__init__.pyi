# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.distribute._central_storage import (
    CentralStorageStrategy as CentralStorageStrategy,
)
from tfdist_jax.compat.tensorflow.distribute._multi_worker import (
    ExperimentalMultiWorkerMirroredStrategy as _MultiWorkerMirroredStrategy,
)
from tfdist_jax.compat.tensorflow.distribute._options import (
    CollectiveCommunication as CollectiveCommunication,
    CollectiveHints as CollectiveHints,
    CommunicationImplementation as CommunicationImplementation,
    CommunicationOptions as CommunicationOptions,
)
from tfdist_jax.compat.tensorflow.distribute._parameter_server import (
    ParameterServerStrategy as ParameterServerStrategy,
)
from tfdist_jax.compat.tensorflow.distribute._pipeline import (
    PipelineStrategy as PipelineStrategy,
)
from tfdist_jax.compat.tensorflow.distribute._preemption import (
    PreemptionCheckpointHandler as PreemptionCheckpointHandler,
    TerminationConfig as TerminationConfig,
)
from tfdist_jax.compat.tensorflow.distribute._sharded import (
    FSDPStrategy as FSDPStrategy,
    ModelParallelStrategy as ModelParallelStrategy,
)
from tfdist_jax.compat.tensorflow.distribute._strategy import (
    ValueContext as ValueContext,
)
from tfdist_jax.compat.tensorflow.distribute._tpu_strategy import (
    ExperimentalTPUStrategy as _TPUStrategy,
)
from tfdist_jax.compat.tensorflow.distribute.experimental import (
    coordinator as coordinator,
    partitioners as partitioners,
)
MultiWorkerMirroredStrategy = _MultiWorkerMirroredStrategy
TPUStrategy = _TPUStrategy
