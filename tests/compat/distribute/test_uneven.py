"""Batches that the replicas cannot share evenly: all ways to train give the same."""

import jax
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


@pytest.mark.one_in(2)
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


def evaluate(rows, *, first):
    """Return what an evaluation by three replicas gives for so many rows, after one for `first` rows; and how often it was traced."""
    strategy, model, _ = make_parts(3)
    with strategy.scope():
        error = keras.metrics.MeanAbsoluteError()
        options = {"synchronization": tf.VariableSynchronization.ON_READ, "aggregation": tf.VariableAggregation.SUM}
        own = tf.Variable(0.0, trainable=False, **options)
    free = tf.Variable(0.0)
    traces, results = [], []

    def step(x, y):
        traces.append(x.shape)
        predictions = model(x)
        error.update_state(y, predictions)
        own.assign_add(tf.reduce_sum(x))
        free.assign(tf.reduce_sum(predictions))
        return predictions, {"loss": tf.reduce_sum((predictions - y) ** 2), "three": 3}, x[:2]

    @tf.function
    def run(batch):
        predictions, others, some = strategy.run(step, args=batch)
        return strategy.gather(predictions, 0), strategy.reduce("SUM", others["loss"], None), strategy.gather(some, 0)

    random = np.random.RandomState(0)
    for n in (first, rows):
        arrays = random.randn(rows, 4).astype("f4")[:n], random.randn(rows, 1).astype("f4")[:n]
        (batch,) = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(arrays).batch(n))
        error.reset_state()
        results = [np.asarray(value) for value in (*run(batch), error.result(), own, free)]
        random.seed(0)
        own.assign(0.0)
    return results, len(traces) - 1


@pytest.mark.parametrize("rows", [8, 5, 2, 1])
def test_a_step_that_does_not_communicate_is_one_program_with_a_branch_for_each_size(rows):
    results, traces = evaluate(rows, first=3)
    expected, traces_in_lockstep = evaluate(rows, first=rows)
    assert traces == 2 and traces_in_lockstep == 3 - 1
    for one, other in zip(results, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def run_on_rows(step, num_replicas=2):
    """Return a function of a number of rows: what each replica returns for its own of them, which are ones."""
    strategy, _, _ = make_parts(num_replicas)
    run = tf.function(lambda rows: strategy.run(step, args=(rows,)))

    def call(n):
        (batch,) = strategy.experimental_distribute_dataset(
            tf.data.Dataset.from_tensor_slices(np.ones(n, "f4")).batch(n)
        )
        return [float(value) for value in strategy.experimental_local_results(run(batch))]

    return call


@pytest.mark.parametrize(
    ("step", "even", "uneven"),
    [
        (len, [2], [2, 1]),
        (lambda x: x[0] if len(x) == 2 else tf.cast(x[0], tf.int32), [1, 1], [1, 1]),
        (lambda x: x if len(x) == 0 else x[0], [1, 1], [1, 1]),
    ],
    ids=["Python value", "type", "same"],
)
def test_what_a_step_returns_may_depend_on_the_size_of_the_batch(step, even, uneven):
    run = run_on_rows(step)
    assert run(4) == even and run(3) == uneven


def test_a_step_that_communicates_only_for_some_sizes_is_an_error():
    def step(x):
        context = tf.distribute.get_replica_context()
        return context.all_reduce("SUM", x[0]) if len(x) == 1 else x[0]

    run = run_on_rows(step)
    assert run(4) == [1, 1]
    with pytest.raises(RuntimeError, match="1 of 2 replicas ended while the others wait in a collective"):
        run(3)
    assert run(2) == [2, 2]


def test_a_tape_around_uneven_replicas_sees_them():
    strategy, _, _ = make_parts(2)
    with strategy.scope():
        w = tf.Variable([1.0, 2.0])

    def step(x):
        return tf.reduce_sum(w * x, 1)

    @tf.function
    def run(x):
        with tf.GradientTape() as tape:
            losses = strategy.run(step, args=(x,))
            loss = strategy.reduce("SUM", losses, 0)
        return loss, tape.gradient(loss, w)

    for n in (4, 3):
        rows = np.arange(2.0 * n, dtype="f4").reshape(n, 2)
        (batch,) = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(rows).batch(n))
        loss, gradient = run(batch)
        assert float(loss) == (rows * [1, 2]).sum() and gradient.numpy().tolist() == rows.sum(0).tolist()


def test_jaxs_own_collectives_are_never_in_branches():
    run = run_on_rows(lambda x: jax.lax.psum(jnp.sum(x), "data"))
    assert run(4) == [4, 4]
    with pytest.raises(NameError, match="unbound axis name"):
        run(3)
    assert run(2) == [2, 2]
