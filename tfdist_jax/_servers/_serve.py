"""What the process of a task does: it is a server, or a worker, for as long as the coordinator wants one."""

import logging
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from tfdist_jax._servers._ray_cluster import RayCluster

_log = logging.getLogger("tfdist_jax")
_LOOK_S = 1.0
_LIMIT_S = 60.0


def serve(jobs: Mapping[str, Sequence[str]], job: str, index: int) -> NoReturn:
    """Be a task "ps" or "worker" of a cluster until the process is ended.

    Args:
        jobs: The addresses of the cluster's tasks, by their jobs.
        job: Which job's task it is.
        index: Which of them.

    Raises:
        SystemExit: If a server's memory is lost.
    """
    from tfdist_jax._servers._ray_cluster import RayCluster  # As in `connect`.

    # What ends with the process is closed, also when it is asked to end.
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    cluster = RayCluster(jobs, (job, index))
    try:
        _be_task(cluster, job, index)
    finally:
        if is_main:
            signal.alarm(0)  # What Ray does with a signal lets the process abort three seconds later.
        cluster.close()


def _be_task(cluster: "RayCluster", job: str, index: int) -> NoReturn:
    from tfdist_jax._servers._ray_actors import ServerActor, WorkerActor

    kind = ServerActor if job == "ps" else WorkerActor
    actor = cluster.start_actor(kind)
    _log.info("The task %s %d is there.", job, index)
    while True:
        time.sleep(_LOOK_S)
        try:
            cluster.ray.get(actor.ping.remote(), timeout=_LIMIT_S)
        except cluster.ray.exceptions.GetTimeoutError:
            continue  # Whoever waits for it decides what becomes of it.
        except cluster.ray.exceptions.RayActorError as error:
            if job == "ps":
                sys.exit(
                    f"The process of the server {index} has ended, and with it the variables that it held: {error}"
                )
            _log.warning("The process of the worker %d has ended; it starts again.", index)
            actor = cluster.start_actor(kind)
