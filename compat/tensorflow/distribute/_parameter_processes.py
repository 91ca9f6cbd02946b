"""Parameter servers and workers in processes of their own."""

from collections.abc import Mapping, Sequence
from typing import Any


def connect(jobs: Mapping[str, Sequence[str]]) -> tuple[Any, list[Any]]:
    """Wait for a cluster's servers and workers; return what reaches the servers, and the workers."""
    # They take Ray.
    from tfdist_jax._servers._ray_cluster import RayCluster
    from tfdist_jax._servers._ray_engine import RayServers, RayWorker

    task = ("chief", 0) if jobs.get("chief") else None
    cluster = RayCluster(jobs, task)
    servers = RayServers(cluster, len(jobs["ps"]))
    return servers, [RayWorker(cluster, i, servers) for i in range(len(jobs["worker"]))]
