"""Averages over the global batch know the strategy."""

import jax
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf


@pytest.fixture
def strategy():
    return tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])


def each(strategy, fn):
    return [float(value) for value in strategy.run(fn).values]


def test_average_divides_by_the_batch_of_all_replicas(strategy):
    assert each(strategy, lambda: tf.nn.compute_average_loss([2.0, 4.0])) == [1.5, 1.5]
    assert each(strategy, lambda: tf.nn.compute_average_loss([2.0, 4.0], global_batch_size=3)) == [2, 2]


def test_regularization_is_divided_by_the_replicas(strategy):
    assert each(strategy, lambda: tf.nn.scale_regularization_loss([2.0, 4.0])) == [3, 3]


@pytest.mark.parametrize("fn", [tf.nn.compute_average_loss, tf.nn.scale_regularization_loss])
def test_averages_belong_into_replicas(strategy, fn):
    with strategy.scope(), pytest.raises(RuntimeError, match="in cross replica context, while it was expected"):
        fn([1.0])
    with strategy.scope():
        assert tf.nn.compute_average_loss([1.0], global_batch_size=2) == 0.5


def test_global_batch_size_may_be_traced():
    program = tf.function(lambda n: tf.nn.compute_average_loss([1.0, 2.0], global_batch_size=n))
    assert program(tf.constant(6)) == 0.5 and program(tf.constant(0)) == 0
    with pytest.raises(ValueError, match="must be scalar"):
        tf.nn.compute_average_loss([1.0], global_batch_size=[1])


def test_wrong_label_gives_nan_in_functions():
    losses = tf.function(tf.nn.sparse_softmax_cross_entropy_with_logits)(tf.constant([0, 7]), [[1.0, 2.0], [3.0, 4.0]])
    assert np.isfinite(losses[0]) and np.isnan(losses[1])


LOSSES = {
    "softmax": lambda x: tf.nn.softmax_cross_entropy_with_logits([[1.0, 0.0]], x),
    "sparse": lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits([1], x),
    "sigmoid": lambda x: tf.nn.sigmoid_cross_entropy_with_logits([[1.0, 0.0]], x),
    "weighted": lambda x: tf.nn.weighted_cross_entropy_with_logits([[1.0, 0.0]], x, 3.0),
    "poisson": lambda x: tf.nn.log_poisson_loss([[1.0, 3.0]], x, compute_full_loss=True),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("logits", [[[0.0, 0.0]], [[80.0, -80.0]]], ids=["zero", "large"])
def test_losses_have_finite_gradients(loss, logits):
    if loss is LOSSES["poisson"] and logits[0][0]:
        pytest.skip("exp(80) is large itself.")
    gradient = jax.grad(lambda x: loss(x).sum())(tf.constant(logits))
    assert np.isfinite(gradient).all()


def test_rows_of_a_table_in_parts_follow_each_other():
    first, second = tf.constant([[1.0], [2.0], [3.0]]), tf.constant([[4.0], [5.0]])
    assert tf.nn.embedding_lookup([first, second], [0, 2, 3, 4])[:, 0].tolist() == [1, 3, 4, 5]
    assert tf.nn.embedding_lookup([first], [2]).tolist() == [[3]]
    for number in (5, -1):
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.nn.embedding_lookup([first, second], [number])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"tables of a lookup have \[2, 3\] rows"):
        tf.nn.embedding_lookup([second, first], [0])


def test_clipping_zero_has_no_nan_gradient():
    gradient = jax.grad(lambda x: tf.clip_by_norm(x, 1.0).sum())(tf.zeros([2]))
    assert gradient.tolist() == [1, 1]


def test_broken_gradients_show_after_clipping():
    (clipped,), norm = tf.clip_by_global_norm([tf.constant([np.inf, 1.0])], 1.0)
    assert np.isnan(clipped).all() and np.isinf(norm)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_cross_entropies_of_16_bits_are_computed_in_32(dtype):
    labels, logits = tf.one_hot([0], 100_000), tf.zeros([1, 100_000], dtype)
    for loss in (
        tf.nn.softmax_cross_entropy_with_logits(labels, logits),
        tf.nn.sparse_softmax_cross_entropy_with_logits([0], logits),
    ):
        assert loss.dtype == dtype
        assert float(loss[0]) == (11.515625 if dtype == tf.float16 else 11.5)


def test_gradients_of_cross_entropies_of_float16():
    logits = tf.constant([[1.0, 2.0, 3.5]], tf.float16)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits([1], logits)
    gradient = tape.gradient(loss, logits)
    assert gradient.dtype == tf.float16
    assert gradient.numpy().tolist()[0] == pytest.approx([0.06286621, -0.82910156, 0.7661133], abs=1e-3)
