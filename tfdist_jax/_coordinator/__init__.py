"""Asynchronous training: a coordinator gives closures to workers, which change variables on servers."""

from tfdist_jax._coordinator._closure_queue import (
    Closure as Closure,
    ClosureCancelledError as ClosureCancelledError,
    ClosureQueue as ClosureQueue,
)
from tfdist_jax._coordinator._coordinator import Coordinator as Coordinator, check_options as check_options
from tfdist_jax._coordinator._held_array import (
    ArrayKind as ArrayKind,
    DataLostError as DataLostError,
    DataSource as DataSource,
    DataWorker as DataWorker,
    HeldArray as HeldArray,
    HeldElement as HeldElement,
    fetch as fetch,
)
from tfdist_jax._coordinator._local_rounds import LocalRounds as LocalRounds, LocalWorker as LocalWorker
from tfdist_jax._coordinator._remote_value import RemoteValue as RemoteValue
from tfdist_jax._coordinator._rounds import Rounds as Rounds
from tfdist_jax._coordinator._statistics import Snapshot as Snapshot, Statistics as Statistics
from tfdist_jax._coordinator._worker import (
    CURRENT_WORKER as CURRENT_WORKER,
    EmbeddedWorker as EmbeddedWorker,
    Worker as Worker,
    WorkerLostError as WorkerLostError,
    being_worker as being_worker,
    closure_memory as closure_memory,
    current_worker as current_worker,
    run_freely as run_freely,
    tracing_alone as tracing_alone,
)
