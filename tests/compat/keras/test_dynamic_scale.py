"""`LossScaleOptimizer` in custom loops."""

import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf


def make(strategy, **options):
    with strategy.scope():
        weight = keras.Variable([1.0, 2.0])
        optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5), initial_scale=8.0, **options)
    return weight, optimizer


def loss_of(weight, x):
    return tf.reduce_sum(weight * x)


def modern(weight, optimizer, x):
    with tf.GradientTape() as tape:
        loss = optimizer.scale_loss(loss_of(weight, x))
    optimizer.apply_gradients(zip(tape.gradient(loss, [weight]), [weight], strict=True))


def legacy(weight, optimizer, x):
    with tf.GradientTape() as tape:
        scaled = optimizer.get_scaled_loss(loss_of(weight, x))
    gradients = optimizer.get_unscaled_gradients(tape.gradient(scaled, [weight]))
    optimizer.apply_gradients(zip(gradients, [weight], strict=True))


@pytest.mark.parametrize("way", [modern, legacy])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("rows", [4, 3])
def test_update_happens_only_if_all_replicas_gradients_are_finite(way, compiled, rows):
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    weight, optimizer = make(strategy, dynamic_growth_steps=2)
    optimizer.build([weight])
    run = lambda x: strategy.run(lambda x: way(weight, optimizer, x), args=(x,))
    run = tf.function(run) if compiled else run
    batch = lambda values: next(iter(strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors(values))))
    x = np.ones((rows, 2), np.float32)
    run(batch(x))
    np.testing.assert_allclose(weight.numpy(), np.array([1.0, 2.0]) - 0.5 * rows)
    assert (float(optimizer.loss_scale), int(optimizer.step_counter.numpy())) == (8, 1)
    broken = x.copy()
    broken[-1, 0] = np.inf
    run(batch(broken))
    np.testing.assert_allclose(weight.numpy(), np.array([1.0, 2.0]) - 0.5 * rows)
    assert (float(optimizer.loss_scale), int(optimizer.step_counter.numpy())) == (4, 0)
    run(batch(x))
    run(batch(x))
    np.testing.assert_allclose(weight.numpy(), np.array([1.0, 2.0]) - 1.5 * rows)
    assert (float(optimizer.loss_scale), int(optimizer.step_counter.numpy())) == (8, 0)


def test_without_strategy_and_before_it_is_built():
    weight = keras.Variable([1.0, 2.0])
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5), initial_scale=16.0)
    assert float(optimizer.get_scaled_loss(tf.constant(2.0))) == 32
    assert float(optimizer.get_scaled_loss(lambda: tf.constant(2.0))()) == 32
    assert optimizer.get_unscaled_gradients([None, tf.constant(32.0)])[0] is None
    optimizer.apply_gradients([(tf.constant([1.0, 1.0]), weight)])
    np.testing.assert_allclose(weight.numpy(), [0.5, 1.5])
    optimizer.apply_gradients([(tf.constant([16.0, 16.0]), weight)])
    np.testing.assert_allclose(weight.numpy(), [0.0, 1.0])


class Unscaling(keras.Model):
    """A step as before Keras 3."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(2, kernel_initializer="ones")

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            scaled = self.optimizer.get_scaled_loss(self.compute_loss(y=y, y_pred=self(x, training=True)))
        gradients = self.optimizer.get_unscaled_gradients(tape.gradient(scaled, self.trainable_variables))
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": scaled}


@pytest.mark.parametrize("replicas", [0, 2])
def test_a_models_step_may_unscale_gradients_itself(replicas, make_strategy):
    x, y = np.ones((4, 3), np.float32), np.zeros((4, 2), np.float32)
    strategy = make_strategy(replicas) if replicas else tf.distribute.get_strategy()
    with strategy.scope():
        model = Unscaling()
        model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5), initial_scale=8.0), "mse")
        alone = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, kernel_initializer="ones")])
        alone.compile(keras.optimizers.SGD(0.5), "mse")
    for each in (model, alone):
        each.fit(x, y, epochs=2, verbose=0)
    for weight, expected in zip(model.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(weight, expected, atol=1e-6)
    # Afterwards gradients are taken to be scaled again.
    before = model.dense.bias.numpy()
    gradients = [tf.zeros((3, 2)), tf.fill((2,), 8.0)]
    model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    np.testing.assert_allclose(model.dense.bias.numpy(), before - 0.5)
