"""Clusters of parameter servers in this process."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import pytest
from environment import LIMIT_S

import tfdist_jax.compat.tensorflow as tf


@pytest.fixture
def coordinate() -> Iterator[Callable[..., tuple[Any, Any]]]:
    """Makes a strategy of so many workers and servers, with options, and its coordinator, which ends with the test."""
    made: list[Any] = []

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
