"""Who computes and who keeps the parameters."""

import dataclasses
from collections.abc import Sequence
from typing import final

import jax

from tfdist_jax._cluster import Cluster, are_processes, tf_config
from tfdist_jax._coordinator import EmbeddedWorker, Statistics, Worker
from tfdist_jax._servers import connect
from tfdist_jax._sharding._mesh import Device
from tfdist_jax._stateful._remote_storage import RemoteStorage
from tfdist_jax._stateful._served_storage import EmbeddedServedStorage, ServedStorage


@final
@dataclasses.dataclass(frozen=True)
class Engine:
    """Workers and servers.

    Attributes:
        workers: Who computes.
        storages: The servers, each with some of the parameters.
        statistics: Counts what workers do, and what the storages' programs read and send.
        home: Where what concerns all workers is computed.
    """

    workers: Sequence[Worker]
    storages: Sequence[ServedStorage]
    statistics: Statistics
    home: Device


def count_workers() -> int:
    """Return how many workers there are by default: those of TF_CONFIG's cluster; without one a worker for each device, at least two."""
    cluster = find_processes()
    return max(2, len(_devices())) if cluster is None else cluster.count("worker")


def _devices() -> list[Device]:
    return [device for device in jax.local_devices() if device.platform != "cpu"] or jax.local_devices()


def make_engine(workers: int) -> Engine:
    """Take the servers and workers of TF_CONFIG's cluster, if they are processes.

    Else let threads of this process compute, each on a device of its own as far as there are enough, and keep parameters on the host.

    Args:
        workers: How many workers there are.

    Raises:
        ValueError: If the cluster has another number.
        RuntimeError: If this process is a task to which others give work.
    """
    cluster = find_processes()
    if cluster is not None:
        return _connect(cluster, workers)
    devices = _devices()
    (host, *_) = jax.local_devices(backend="cpu")
    statistics = Statistics(workers)
    threads = [EmbeddedWorker(i, devices[i % len(devices)]) for i in range(workers)]
    return Engine(threads, [EmbeddedServedStorage(host, statistics)], statistics, host)


def find_processes() -> Cluster | None:
    """Return TF_CONFIG's cluster, if it has parameter servers and workers that are processes."""
    cluster = Cluster.of_tf_config(tf_config())
    return cluster if cluster is not None and are_processes(jobs_of(cluster)) else None


def jobs_of(cluster: Cluster) -> dict[str, list[str]]:
    """Return the addresses of a cluster's chief, workers and servers."""
    jobs: dict[str, list[str]] = {"chief": [], "worker": [], "ps": []}
    for task in cluster.tasks:
        if task.type in jobs and task.address:
            jobs[task.type].append(task.address)
    return jobs


def _connect(cluster: Cluster, workers: int) -> Engine:
    count = cluster.count("worker")
    if cluster.task.type != "chief":
        raise RuntimeError(
            f"This process is the task {cluster.task} of its cluster, to which the chief gives work. Let the program call "
            "td.ParameterServer.serve() before it makes one."
        )
    if workers != count:
        raise ValueError(f"`workers` is {workers}, but the cluster of {cluster.source} has {count}. Leave it out.")
    statistics = Statistics(count)
    servers, remote = connect(jobs_of(cluster))
    storages = [RemoteStorage(servers, i, statistics) for i in range(cluster.count("ps"))]
    (host, *_) = jax.local_devices(backend="cpu")
    return Engine(remote, storages, statistics, host)
