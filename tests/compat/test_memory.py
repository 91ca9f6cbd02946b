"""A batch that is too large for the memory costs nothing that was trained."""

import contextlib

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

HUGE = 1 << 36


def need_much(x, count):
    return tf.sort(tf.reshape(x, (-1, 1)) + tf.zeros((1, count)))[:, 3]


@pytest.mark.parametrize("make", [tf.distribute.MirroredStrategy, lambda: tf.distribute.OneDeviceStrategy("cpu:0")])
def test_variables_are_as_before_a_step_that_is_too_large(make):
    strategy = make()
    with strategy.scope():
        values, count = tf.Variable(tf.ones((2048, 1024))), tf.Variable(0)

    @tf.function
    def step(x, size):
        def run(x):
            values.assign_add(tf.ones((2048, 1024)))
            count.assign_add(1 + tf.cast(tf.reduce_sum(need_much(x, size)), tf.int32))

        strategy.run(run, args=(x,))

    step(tf.ones(8), 10)
    for _ in range(2):
        with pytest.raises(tf.errors.ResourceExhaustedError, match=r"`step` needs .* It has not run"):
            step(tf.ones(8), HUGE)
    step(tf.ones(8), 10)
    np.testing.assert_array_equal(values, np.full((2048, 1024), 3))
    assert int(count) > 0


@pytest.mark.parametrize("strategy", [None, tf.distribute.MirroredStrategy()])
def test_a_model_stays_trained_if_a_batch_is_too_large(strategy):
    class Large(tf.keras.layers.Layer):
        def call(self, x):
            return x + tf.reduce_sum(need_much(tf.stop_gradient(x), HUGE if x.shape[0] == 64 else 8))

    with strategy.scope() if strategy else contextlib.nullcontext():
        model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(8), Large(), tf.keras.layers.Dense(1)])
        model.compile("adam", "mse")
    x = np.ones((128, 4), "f4")
    fit = lambda size: model.fit(x, x[:, :1], batch_size=size, verbose=0)
    fit(32)
    before, steps = model.get_weights(), int(model.optimizer.iterations)
    size = 64 * (strategy.num_replicas_in_sync if strategy else 1)
    x = np.ones((size, 4), "f4")
    for run in (lambda: fit(size), lambda: model.predict(x, batch_size=size, verbose=0)):
        with pytest.raises(tf.errors.ResourceExhaustedError, match="Out of memory"):
            run()
    for one, other in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)
    fit(32)
    assert int(model.optimizer.iterations) > steps
