"""Batches that the replicas cannot share evenly: all ways to train give the same."""

import jax.numpy as jnp
import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax import PerReplica
from tfdist_jax._stateful._merging import row_counts


def make_parts(num_replicas):
    strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(num_replicas)])
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [keras.layers.Dense(8), keras.layers.BatchNormalization(momentum=0.5), keras.layers.Dense(1)]
        return strategy, keras.Sequential([keras.Input((4,)), *layers]), keras.optimizers.SGD(0.05)


def fit(batches, num_replicas):
    strategy, model, optimizer = make_parts(num_replicas)
    with strategy.scope():
        model.compile(optimizer, "mse")
    losses = []
    for x, y in batches:
        losses.append(model.train_on_batch(x, y))
        model.reset_metrics()
    return losses, model.get_weights()


def loop(batches, num_replicas, *, compiled=False, needs_values=False):
    strategy, model, optimizer = make_parts(num_replicas)

    def step(x, y):
        with tf.GradientTape() as tape:
            errors = tf.reduce_sum((model(x, training=True) - y) ** 2, 1)
            # As in `fit`: the mean over each replica's own rows is one part of the loss.
            loss = tf.reduce_sum(errors) / max(1, x.shape[0]) / num_replicas
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        if needs_values:
            float(loss)
        return tf.reduce_sum(errors)

    run = lambda x, y: strategy.reduce("SUM", strategy.run(step, args=(x, y)), axis=None)
    run = tf.function(run) if compiled else run
    losses = []
    for x, y in batches:
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(len(x))
        (batch,) = strategy.experimental_distribute_dataset(dataset)
        losses.append(float(run(*batch)) / len(x))
    return losses, model.get_weights()


@pytest.mark.parametrize(
    "how", [{"compiled": True}, {}, {"needs_values": True}], ids=["function", "run", "with values"]
)
@pytest.mark.parametrize("rows", [3, 1], ids=["all have rows", "one has none"])
def test_losses_weights_and_statistics_are_those_of_fit(how, rows):
    random = np.random.RandomState(0)
    batches = [[random.randn(n, 4).astype("f4"), random.randn(n, 1).astype("f4")] for n in (6, rows, 5)]
    expected, expected_weights = fit(batches, 2)
    losses, weights = loop(batches, 2, **how)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for one, other in zip(weights, expected_weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_statistics_count_each_row_once():
    strategy, _, _ = make_parts(2)
    with strategy.scope():
        layer = keras.layers.BatchNormalization(momentum=0.0)
        layer.build((None, 1))
    values = np.array([[1.0], [2.0], [30.0]], "f4")
    (batch,) = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(values).batch(3))
    strategy.run(lambda x: layer(x, training=True), args=(batch,))
    assert float(layer.moving_mean[0]) == 11.0


def test_replicas_count_alike_where_batches_disagree_about_the_rows():
    ragged, rows = PerReplica.uneven([jnp.ones(5), jnp.ones(1)]), PerReplica(jnp.ones([4, 3]), 2, is_rows=True)
    assert row_counts((ragged, PerReplica.uneven([1, 2])), 2) == (5, 1)
    assert row_counts((ragged, rows), 2) == (1, 1)
    assert row_counts(PerReplica.uneven([jnp.ones(0)] * 2), 2) == (1, 1)
