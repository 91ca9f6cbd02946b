"""How a coordinator comes to its cluster."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfdist_jax._servers._ray_engine import RayServers, RayWorker


def connect(jobs: Mapping[str, Sequence[str]]) -> "tuple[RayServers, list[RayWorker]]":
    """Wait for a cluster's servers and workers; return what reaches the servers, and the workers.

    Args:
        jobs: The addresses of the tasks "ps" and "worker", and of the "chief" if there is one, which this process is.

    Raises:
        ImportError: If Ray is missing.
        ValueError: If the process knows no secret.
        TimeoutError: If one does not come.
    """
    # Few programs have servers in other processes, and all load this module.
    from tfdist_jax._servers._ray_cluster import RayCluster
    from tfdist_jax._servers._ray_engine import RayServers, RayWorker

    cluster = RayCluster(jobs, ("chief", 0) if jobs.get("chief") else None)
    servers = RayServers(cluster, len(jobs["ps"]))
    return servers, [RayWorker(cluster, i, servers) for i in range(len(jobs["worker"]))]
