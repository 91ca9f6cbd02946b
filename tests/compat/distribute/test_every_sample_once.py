"""Custom loops over any number of samples, batch size and replicas: each sample counts once, gradients are exact."""

import os

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

import tfdist_jax.compat.tensorflow as tf

FEATURES = 3
MAX_REPLICAS = 8
SHARE = tf.distribute.ReduceOp.SUM

strategies = {n: tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(n)]) for n in range(1, MAX_REPLICAS + 1)}


def samples(count):
    """Return inputs whose first feature is the sample's number, and labels."""
    rng = np.random.default_rng(count)
    x = rng.normal(size=(count, FEATURES)).astype(np.float32)
    x[:, 0] = np.arange(count)
    return x, rng.normal(size=count).astype(np.float32)


def sample_loss(w, x, y):
    """Return each sample's loss, without reduction."""
    return tf.square(tf.math.sin(tf.linalg.matvec(x, w)) - y)


def one_device_gradient(w, x, y, batch_size):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(sample_loss(w, x, y)) / batch_size
    return loss, tape.gradient(loss, w)


@pytest.mark.slow("compiles for up to eight replicas, example after example")
@settings(max_examples=int(os.environ.get("TFDIST_EXAMPLES", "8")), deadline=None, derandomize=True)
@given(
    replicas=st.integers(1, MAX_REPLICAS),
    batch_size=st.integers(1, 19),
    full_batches=st.integers(0, 2),
    rest=st.integers(0, 18),
    compiled=st.booleans(),
)
@example(replicas=8, batch_size=8, full_batches=0, rest=1, compiled=True)
@example(replicas=4, batch_size=3, full_batches=1, rest=1, compiled=False)
@example(replicas=3, batch_size=19, full_batches=1, rest=18, compiled=True)
def test_each_sample_counts_once(replicas, batch_size, full_batches, rest, compiled):
    count = full_batches * batch_size + rest % batch_size
    if not count:
        return
    x, y = samples(count)
    strategy = strategies[replicas]
    with strategy.scope():
        w = tf.Variable([0.5, -1.0, 2.0])
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch_size)

    def step(inputs, labels):
        with tf.GradientTape() as tape:
            losses = sample_loss(w, inputs, labels)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=batch_size)
        gradient = tape.gradient(loss, w)
        return loss, tf.distribute.get_replica_context().all_reduce(SHARE, gradient), inputs[:, 0]

    run = lambda *batch: strategy.run(step, args=batch)
    run = tf.function(run) if compiled else run
    seen = []
    for number, batch in enumerate(strategy.experimental_distribute_dataset(dataset)):
        loss, gradient, numbers = run(*batch)
        rows = slice(number * batch_size, min((number + 1) * batch_size, count))
        wanted_loss, wanted = one_device_gradient(w, x[rows], y[rows], batch_size)
        np.testing.assert_allclose(strategy.reduce(SHARE, loss, axis=None), wanted_loss, rtol=2e-5, atol=1e-6)
        for local in strategy.experimental_local_results(gradient):
            np.testing.assert_allclose(local, wanted, rtol=2e-5, atol=2e-5)
        seen.extend(float(n) for local in strategy.experimental_local_results(numbers) for n in np.asarray(local))
    assert seen == list(range(count))
