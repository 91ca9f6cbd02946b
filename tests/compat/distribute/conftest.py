"""Clusters of parameter servers in this process."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

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
