"""What this machine's processor can do, split into virtual devices."""

import os
import time
from collections.abc import Callable

import jax
import numpy as np

from tfdist_jax._hardware import Hardware
from tfdist_jax._host_memory import count_bytes

_SIZE = 1024
# What a turn takes on virtual devices that share cores, where threads wait for each other: measured on two cores with eight devices.
_LATENCY_S = 1e-5


def measure_host(num_devices: int) -> Hardware:
    """Measure what virtual CPU devices can do here, in a moment: products of float32, and copies.

    Virtual devices exchange by each reading what all have, and writing it, so that links are as much slower than memory.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    device = jax.devices("cpu")[0]
    matrix = jax.device_put(np.ones((_SIZE, _SIZE), np.float32), device)
    find_rate = lambda fn: 1 / (_find_shortest(lambda: fn(matrix).block_until_ready()) * cores)
    flops = 2 * _SIZE**3 * find_rate(jax.jit(lambda x: x @ x))
    bandwidth = 2 * matrix.nbytes * find_rate(jax.jit(lambda x: x + 1))
    return Hardware(
        "cpu",
        flops=flops,
        flops_float32=flops,
        memory=count_bytes() / num_devices,
        bandwidth=bandwidth,
        links=bandwidth / (2 * num_devices),
        network=bandwidth / (2 * num_devices),
        node=num_devices,
        latency=_LATENCY_S,
        overlap=0.0,
        parallel=cores,
    )


def _find_shortest(run: Callable[[], object]) -> float:
    """Return the shortest of some times, in seconds."""
    times = []
    for _ in range(6):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times)
