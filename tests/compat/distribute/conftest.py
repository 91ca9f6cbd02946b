"""Clusters of parameter servers in this process."""

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import pytest
from environment import LIMIT_S
from fake_ray import FakeRay

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax._servers._ray_engine import RayServers, RayWorker
from tfdist_jax.compat.tensorflow.distribute import _parameter_server


@pytest.fixture
def engine() -> str:
    """Whether workers and servers are threads of this process, or are reached by "messages", as processes are."""
    return "threads"


@pytest.fixture
def rays() -> Iterator[list[FakeRay]]:
    """The clusters that are reached by messages."""
    made: list[FakeRay] = []
    yield made
    for ray in made:
        ray.close()


@pytest.fixture
def coordinate(
    engine: str, rays: list[FakeRay], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[Any, Any]]]:
    """Makes a strategy of so many workers and servers, with options, and its coordinator, which ends with the test."""
    made: list[Any] = []

    def connect(jobs: Any) -> Any:
        rays.append(FakeRay(len(jobs["ps"]), len(jobs["worker"])))
        monkeypatch.setitem(sys.modules, "ray", rays[-1])
        servers = RayServers(rays[-1], len(jobs["ps"]))
        return servers, [RayWorker(rays[-1], i, servers) for i in range(len(jobs["worker"]))]

    if engine == "messages":
        monkeypatch.setattr(_parameter_server, "are_processes", lambda jobs: True)
        monkeypatch.setattr(_parameter_server, "connect", connect)

    def coordinate(workers: int = 2, servers: int = 2, partitioner: Any = None, **options: Any) -> tuple[Any, Any]:
        jobs = {"worker": workers, "ps": servers}
        spec = tf.train.ClusterSpec(
            {job: [f"localhost:{2222 + i}" for i in range(count)] for job, count in jobs.items()}
        )
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec)
        strategy = tf.distribute.ParameterServerStrategy(resolver, partitioner, **options)
        made.append(tf.distribute.coordinator.ClusterCoordinator(strategy))
        return strategy, made[-1]

    yield coordinate
    for coordinator in made:
        coordinator._native.stop()


@pytest.fixture
def meeting() -> Callable[[int], Callable[[Any], Any]]:
    """Makes, for a number of workers, a function that returns its argument when so many of them have called it in their programs."""

    def make(workers: int) -> Callable[[Any], Any]:
        barrier = threading.Barrier(workers, timeout=LIMIT_S)

        def wait(x: Any) -> Any:
            barrier.wait()
            return x

        return lambda x: jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    return make
