"""Variables that a model reads without owning them."""

import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf


@pytest.mark.parametrize("kind", [tf.Variable, keras.Variable])
def test_a_variable_in_a_loss_is_read_anew_in_every_step(kind, strategy, make_model, data):
    scale = kind(1.0, trainable=False)
    model = make_model(
        strategy,
        loss=lambda y, y_pred: scale * keras.ops.mean(keras.ops.square(y_pred), -1),
        optimizer=lambda: keras.optimizers.SGD(0.0),
        metrics=None,
    )
    losses = []
    for value in (1.0, 3.0, 0.5):
        scale.assign(value)
        losses.append(model.train_on_batch(data.x, data.y))
    np.testing.assert_allclose(losses, [losses[0], 3 * losses[0], 0.5 * losses[0]], rtol=1e-5)
    scale.assign(2.0)
    assert model.evaluate(data.x, data.y, verbose=0) == pytest.approx(2 * losses[0], rel=1e-5)


def test_a_frozen_model_beside_the_trained_one_may_change(strategy, make_model, data):
    teacher = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])

    class Student(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(4, kernel_initializer="zeros")

        def call(self, x):
            return self.dense(x) + keras.ops.stop_gradient(teacher(x))

    model = make_model(strategy, model=Student)
    np.testing.assert_allclose(model.predict(data.x, verbose=0), teacher(data.x), atol=1e-5)
    teacher.set_weights([2 * weight for weight in teacher.get_weights()])
    np.testing.assert_allclose(model.predict(data.x, verbose=0), teacher(data.x), atol=1e-5)


def test_assigning_a_tensorflow_variable_in_a_step_is_refused(strategy, make_model, data):
    count = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)

    class Counting(keras.layers.Layer):
        def call(self, x, training=False):
            if training:
                count.assign_add(1.0)
            return x

    model = make_model(strategy, hidden=[Counting])
    with pytest.raises(NotImplementedError, match="assigned a variable that is not its own"):
        model.train_on_batch(data.x, data.y)


def test_random_numbers_without_a_seed_are_refused_rather_than_frozen(strategy, make_model, data):
    class Noise(keras.layers.Layer):
        def call(self, x, training=False):
            return x + keras.random.normal((1, 16)) if training else x

    model = make_model(strategy, hidden=[Noise])
    with pytest.raises(ValueError, match="you should only use seeded random ops"):
        model.train_on_batch(data.x, data.y)
