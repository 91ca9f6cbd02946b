"""`ParameterServerStrategy` in tests of Keras's loops: how it is made, and the kinds of models that are trained."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import pytest

import tfdist_jax.compat.tensorflow as tf


def make_strategy(workers: int = 2, **options: Any) -> Any:
    """Return a strategy of so many workers and two servers."""
    jobs = {"worker": workers, "ps": 2}
    spec = {job: [f"localhost:{2222 + i}" for i in range(count)] for job, count in jobs.items()}
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(spec))
    return tf.distribute.ParameterServerStrategy(resolver, **options)


@pytest.fixture
def make() -> Iterator[Callable[..., Any]]:
    """Makes strategies, whose coordinators end with the test."""
    made: list[Any] = []

    def make(*args: Any, **options: Any) -> Any:
        made.append(make_strategy(*args, **options))
        return made[-1]

    yield make
    for strategy in made:
        if strategy.coordinator is not None:
            strategy.coordinator._native.stop()


def statistics(strategy: Any) -> Any:
    """Return what has happened under a strategy."""
    return tf.distribute.coordinator.ClusterCoordinator(strategy).statistics


class InTensorFlowsForm(keras.Sequential):
    """A model with a step of its own."""

    def train_step(self, data: Any) -> Any:
        """Apply gradients by the optimizer."""
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss, "rows": tf.shape(x)[0]}


KINDS: dict[str, dict[str, Any]] = {
    "Keras's step": {},
    "several in a call": {"steps_per_execution": 3},
    "clipped SGD": {"optimizer": lambda: keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.1)},
    "accumulating": {"optimizer": lambda: keras.optimizers.Adam(0.02, gradient_accumulation_steps=2)},
    "scaled": {"optimizer": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))},
    "the user's step": {"model": InTensorFlowsForm},
    "eagerly": {"run_eagerly": True},
}
