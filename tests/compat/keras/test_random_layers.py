"""`tf.random` and `tf.shape` inside Keras layers: the batch size stays open, every step draws other numbers."""

import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf


class Noise(keras.layers.Layer):
    """Adds normal numbers, one row for each of the batch."""

    def call(self, x):
        return x + tf.random.normal([tf.shape(x)[0], x.shape[1]])


def strategies():
    return {
        "no_strategy": tf.distribute.get_strategy,
        "mirrored": lambda: tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]),
    }


@pytest.fixture(params=["no_strategy", "mirrored"])
def make_model(request):
    def make(**options):
        with strategies()[request.param]().scope():
            model = keras.Sequential([keras.Input((3,)), Noise()])
            model.compile("sgd", "mse", **options)
        return model

    return make


def test_shape_of_the_output_keeps_the_open_batch_size(make_model):
    assert make_model().output_shape == (None, 3)


def test_every_step_and_every_row_gets_numbers_of_its_own(make_model):
    zeros = np.zeros((8, 3), np.float32)
    predicted = make_model().predict(zeros, batch_size=4, verbose=0)
    assert len(np.unique(predicted)) == predicted.size


def test_seed_fixes_the_numbers(make_model):
    model, zeros = make_model(), np.zeros((4, 3), np.float32)
    model.predict(zeros, verbose=0)
    results = []
    for _ in range(2):
        tf.random.set_seed(7)
        results.append(model.predict(zeros, verbose=0))
    np.testing.assert_array_equal(*results)


def test_layers_that_draw_train(make_model):
    model = make_model(steps_per_execution=2)
    history = model.fit(np.zeros((10, 3), np.float32), np.zeros((10, 3), np.float32), batch_size=2, verbose=0)
    assert history.history["loss"][0] > 0.1
