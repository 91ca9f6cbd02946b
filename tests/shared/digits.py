"""Scikit-learn's digits, and their training by functions that a coordinator schedules."""

from typing import Any

import keras
import numpy as np
from sklearn.datasets import load_digits

import tfdist_jax.compat.tensorflow as tf

NUM_TRAINED = 1500
"""How many of the 1,797 images are trained on; the others are to test with."""


def load_shuffled_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return the images, `[1797, 64]` float32 in 0..1, and their labels, in an order that is always the same."""
    x, y = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(x))
    return (x[order] / 16).astype("f4"), y[order]


class DigitsTraining:
    """A perceptron in a strategy's scope, with what trains it and what counts how well it does."""

    def __init__(self, strategy: Any, learning_rate: float) -> None:
        """Make its variables; train by Adam."""
        self.x, self.y = load_shuffled_digits()
        keras.utils.set_random_seed(0)
        with strategy.scope():
            self.model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)])
            self.optimizer = keras.optimizers.Adam(learning_rate)
            self.accuracy = keras.metrics.SparseCategoricalAccuracy()

    def train(self, x: Any, y: Any) -> Any:
        """Make a step on a batch; return its loss."""
        with tf.GradientTape() as tape:
            logits = self.model(x, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
        weights = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    def make_iterators(self, coordinator: Any, batch_size: int) -> Any:
        """Return an iterator of each worker over all that is trained on, in an order of its own, again and again."""

        def make_dataset() -> Any:
            index = tf.distribute.coordinator.experimental_get_current_worker_index()
            data = tf.data.Dataset.from_tensor_slices((self.x[:NUM_TRAINED], self.y[:NUM_TRAINED]))
            return data.shuffle(NUM_TRAINED, seed=int(index)).repeat().batch(batch_size)

        return iter(coordinator.create_per_worker_dataset(make_dataset))

    def evaluate(self, coordinator: Any) -> float:
        """Return the accuracy of the other images, of which workers take 33 each time."""

        @tf.function
        def evaluate(x: Any, y: Any) -> None:
            self.accuracy.update_state(y, self.model(x, training=False))

        for start in range(NUM_TRAINED, len(self.x), 33):
            rows = slice(start, start + 33)
            coordinator.schedule(evaluate, args=(tf.constant(self.x[rows]), tf.constant(self.y[rows])))
        coordinator.join()
        return float(self.accuracy.result())
