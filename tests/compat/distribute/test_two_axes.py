"""Strategies whose replicas have several devices each: the second axis of the mesh is XLA's."""

import dataclasses
from typing import final

import keras
import numpy as np
import pytest

import tfdist_jax
import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy


@final
@dataclasses.dataclass(frozen=True)
class TwoAxes(tfdist_jax.Strategy):
    """Two replicas of four devices."""

    @property
    def mesh(self):
        return tfdist_jax.make_mesh({"data": 2, "tensor": 4})

    def state_layout(self, leaf):
        return tfdist_jax.Layout()


def make_model():
    keras.utils.set_random_seed(1)
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])


def data():
    random = np.random.RandomState(0)
    return random.randn(21, 4).astype("f4"), random.randn(21, 1).astype("f4")  # The last batch is uneven.


def fit(strategy):
    with strategy.scope():
        model = make_model()
        model.compile("sgd", "mse")
    losses = model.fit(*data(), batch_size=8, shuffle=False, verbose=0, epochs=2).history["loss"]
    return losses, model.get_weights()


def loop(strategy):
    with strategy.scope():
        model, optimizer = make_model(), tf.keras.optimizers.SGD(0.1)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(tf.reduce_sum((model(x) - y) ** 2, 1), global_batch_size=8)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return loss

    run = tf.function(lambda batch: strategy.reduce("SUM", strategy.run(step, args=batch), axis=None))
    batches = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(data()).batch(8))
    return [float(run(batch)) for batch in batches], model.get_weights()


@pytest.mark.parametrize("train", [fit, loop])
def test_training_is_that_of_a_replica_for_each_device(train):
    expected, expected_weights = train(tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]))
    losses, weights = train(Strategy(TwoAxes()))
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    for one, other in zip(weights, expected_weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_step_that_needs_values_is_refused():
    with pytest.raises(NotImplementedError, match=r"one device for each replica.*'tensor': 4"):
        Strategy(TwoAxes()).run(lambda: float(tf.constant(1.0) + 1))
