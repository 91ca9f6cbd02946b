"""How a coordinator, and each of its tasks, comes to its cluster."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn


def connect(jobs: Mapping[str, Sequence[str]]) -> tuple[Any, list[Any]]:
    """Wait for a cluster's servers and workers; return what reaches the servers, and the workers.

    Args:
        jobs: The addresses of the tasks "ps" and "worker", and of the "chief" if there is one, which this process is.

    Raises:
        ImportError: If Ray is missing.
        ValueError: If the process knows no secret.
        TimeoutError: If one does not come.
    """
    # They take Ray.
    from tfdist_jax._servers._ray_cluster import RayCluster
    from tfdist_jax._servers._ray_engine import RayServers, RayWorker

    cluster = RayCluster(jobs, ("chief", 0) if jobs.get("chief") else None)
    servers = RayServers(cluster, len(jobs["ps"]))
    return servers, [RayWorker(cluster, i, servers) for i in range(len(jobs["worker"]))]


def serve(jobs: Mapping[str, Sequence[str]], job: str, index: int) -> NoReturn:
    """Be a task "ps" or "worker" of a cluster until the process is ended.

    Args:
        jobs: The addresses of the cluster's tasks, by their jobs.
        job: Which job's task it is.
        index: Which of them.

    Raises:
        SystemExit: If a server's memory is lost.
    """
    # It takes Ray.
    from tfdist_jax._servers._serve import serve

    serve(jobs, job, index)
