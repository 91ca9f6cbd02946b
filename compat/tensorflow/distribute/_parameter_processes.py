"""Parameter servers and workers in processes of their own."""

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from tfdist_jax._cluster import PARAMETER_SERVERS
from tfdist_jax._cluster._addresses import host_and_port, is_loopback, resolve


def are_processes(jobs: Mapping[str, Sequence[str]]) -> bool:
    """Whether the tasks of a cluster are processes of their own, and not threads of the one that makes the strategy.

    Raises:
        ValueError: If the environment says neither, or wants threads on other machines.
    """
    wanted = os.environ.get(PARAMETER_SERVERS)
    if wanted not in (None, "", "threads", "processes"):
        raise ValueError(f'{PARAMETER_SERVERS} is "threads" or "processes", got {wanted!r}.')
    elsewhere = [address for job in ("ps", "worker") for address in jobs[job] if not _is_here(address)]
    if wanted == "threads" and elsewhere:
        raise ValueError(f"{PARAMETER_SERVERS} is threads, but the task at {elsewhere[0]} is on another machine.")
    return bool(jobs["ps"]) and (wanted == "processes" or bool(elsewhere))


def connect(jobs: Mapping[str, Sequence[str]]) -> tuple[Any, list[Any]]:
    """Wait for a cluster's servers and workers; return what reaches the servers, and the workers."""
    # They take Ray.
    from tfdist_jax._servers._ray_cluster import RayCluster
    from tfdist_jax._servers._ray_engine import RayServers, RayWorker

    task = ("chief", 0) if jobs.get("chief") else None
    cluster = RayCluster(jobs, task)
    servers = RayServers(cluster, len(jobs["ps"]))
    return servers, [RayWorker(cluster, i, servers) for i in range(len(jobs["worker"]))]


def _is_here(address: str) -> bool:
    host, _ = host_and_port(address)
    if host in ("localhost", socket.gethostname()):
        return True
    try:
        return is_loopback(resolve(host))
    except OSError:
        return False
