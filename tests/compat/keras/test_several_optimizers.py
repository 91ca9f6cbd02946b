"""Steps of the user's own, in TensorFlow's form, that apply other optimizers than the model's."""

import contextlib

import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf


class Pair(keras.Model):
    """Two parts, each trained by an optimizer of its own on the other's output; there is no `call`."""

    def __init__(self, **options):
        super().__init__(**options)
        self.first = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, kernel_initializer="ones")])
        self.second = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, kernel_initializer="ones")])
        self.tracker = keras.metrics.Mean(name="tracked")

    def compile(self, first, second, **options):
        super().compile(**options)
        self.optimizers = [first, second]

    @property
    def metrics(self):
        return [self.tracker]

    def train_step(self, data):
        x, y = data[:2]
        for part, optimizer in zip((self.first, self.second), self.optimizers, strict=True):
            with tf.GradientTape() as tape:
                error = self.second(self.first(x)) - tf.cast(y, tf.float32)[:, None]
                loss = tf.reduce_sum(tf.square(error)) / 16.0
                scaled = optimizer.scale_loss(loss)
            gradients = tape.gradient(scaled, part.trainable_weights)
            optimizer.apply_gradients(zip(gradients, part.trainable_weights, strict=True))
        self.tracker.update_state(loss)
        return {"tracked": self.tracker.result()}


def adam():
    return keras.optimizers.Adam(0.05)


def scaled():
    return keras.optimizers.LossScaleOptimizer(adam(), initial_scale=8.0, dynamic_growth_steps=3)


OPTIMIZERS = {
    "adam": (adam, adam),
    "clipped": (lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.1), adam),
    "scaled": (scaled, scaled),
}


def trained(strategy, data, optimizers, **options):
    with strategy.scope() if strategy is not None else contextlib.nullcontext():
        model = Pair()
        model.compile(*(make() for make in optimizers), **options)
    for _ in range(2):
        model.fit(*data, batch_size=16, epochs=2, shuffle=False, verbose=0)
    return model


@pytest.mark.one_in(2)
@pytest.mark.parametrize("rows", [64, 40, 18])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_each_optimizer_sums_gradients_and_keeps_its_state(kind, rows, strategy, data):
    """The loss is a sum, so that uneven replicas, too, give what one device gives."""
    model, alone = (trained(where, data.rows(rows), OPTIMIZERS[kind]) for where in (strategy, None))
    for weight, expected in zip(model.weights, alone.weights, strict=True):
        np.testing.assert_allclose(weight.numpy(), expected.numpy(), atol=2e-5, err_msg=weight.path)
        for shard in weight.value.addressable_shards:
            np.testing.assert_array_equal(shard.data, weight.numpy())
    for optimizer, other in zip(model.optimizers, alone.optimizers, strict=True):
        assert int(optimizer.iterations) == 4 * -(-rows // 16)
        for slot, expected in zip(optimizer.variables, other.variables, strict=True):
            np.testing.assert_allclose(slot.numpy(), expected.numpy(), atol=1e-4, err_msg=slot.path)


@pytest.mark.parametrize("options", [{"run_eagerly": True}, {"steps_per_execution": 3}], ids=str)
def test_ways_to_run_steps_keep_their_state_too(options, strategy, data):
    usual, other = (trained(strategy, data.rows(40), (adam, adam), **o) for o in ({}, options))
    for weight, expected in zip(usual.weights, other.weights, strict=True):
        np.testing.assert_allclose(weight.numpy(), expected.numpy(), atol=1e-5)


def test_a_gradient_that_is_not_finite_stops_its_optimizer_alone(strategy, data):
    x = data.x[:16].copy()
    model = trained(strategy, data.rows(16), (scaled, adam))
    steps = [int(optimizer.iterations) for optimizer in model.optimizers]
    x[15] = np.inf
    before = model.first.get_weights()
    model.train_on_batch(x, data.y[:16])
    assert [int(optimizer.iterations) for optimizer in model.optimizers] == [steps[0], steps[1] + 1]
    np.testing.assert_array_equal(before[0], model.first.get_weights()[0])


def test_parts_that_nobody_has_built_are_asked_for(strategy):
    class Unbuilt(keras.Model):
        def __init__(self):
            super().__init__()
            self.part = keras.layers.Dense(3)

        def train_step(self, data):
            return {"sum": tf.reduce_sum(self.part(data))}

    with strategy.scope():
        model = Unbuilt()
        model.compile()
    with pytest.raises(RuntimeError, match="Unable to automatically build the model"):
        model.fit(np.ones((4, 2)), verbose=0)
