"""Several processes: which there are, how they find each other, how they part."""

from tfdist_jax._cluster._agreement import (
    agree as agree,
    allgather_object as allgather_object,
    step_fields as step_fields,
)
from tfdist_jax._cluster._detect import (
    LAUNCHED as LAUNCHED,
    LAUNCHER as LAUNCHER,
    RESTART as RESTART,
    RESTART_HEADING as RESTART_HEADING,
    detect_cluster as detect_cluster,
    tf_config as tf_config,
)
from tfdist_jax._cluster._exchange import Background as Background, Exchange as Exchange
from tfdist_jax._cluster._initialize import Timeouts as Timeouts, initialize as initialize
from tfdist_jax._cluster._parameter_servers import (
    PARAMETER_SERVERS as PARAMETER_SERVERS,
    are_processes as are_processes,
)
from tfdist_jax._cluster._peer_monitor import LOST_EXIT_CODE as LOST_EXIT_CODE
from tfdist_jax._cluster._preemption import LateSave as LateSave, Preemption as Preemption
from tfdist_jax._cluster._rendezvous import MissingTasksError as MissingTasksError, versions as versions
from tfdist_jax._cluster._secret import SECRET as SECRET, make_secret as make_secret
from tfdist_jax._cluster._spec import Cluster as Cluster, Task as Task
from tfdist_jax._cluster._tls import TLS as TLS
from tfdist_jax._cluster._waiting import (
    DisagreementError as DisagreementError,
    limit_waits as limit_waits,
    waiting as waiting,
)
