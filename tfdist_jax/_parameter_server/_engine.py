"""Who computes and who keeps the parameters."""

import dataclasses
from collections.abc import Sequence
from typing import final

import jax

from tfdist_jax._coordinator import EmbeddedWorker, Statistics, Worker
from tfdist_jax._sharding._mesh import Device
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


def make_engine(workers: int) -> Engine:
    """Let threads of this process compute, each on a device of its own as far as there are enough, and keep parameters on the host."""
    devices = [device for device in jax.local_devices() if device.platform != "cpu"] or jax.local_devices()
    (host, *_) = jax.local_devices(backend="cpu")
    statistics = Statistics(workers)
    threads = [EmbeddedWorker(i, devices[i % len(devices)]) for i in range(workers)]
    return Engine(threads, [EmbeddedServedStorage(host, statistics)], statistics, host)
