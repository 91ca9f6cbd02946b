import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf


def test_products_agree_with_the_jacobian():
    x, direction = tf.constant([1.0, 2.0, 3.0]), tf.constant([0.5, -1.0, 2.0])
    compute = lambda: tf.stack([x[0] * x[1], tf.reduce_sum(tf.sin(x) * x)])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = compute()
    with tf.autodiff.ForwardAccumulator(x, direction) as accumulator:
        z = compute()
    expected = tf.reduce_sum(tape.jacobian(y, x) * direction, 1)
    assert accumulator.jvp(z).tolist() == pytest.approx(expected.tolist(), rel=1e-6)


def test_forward_over_backward_is_a_hessian_vector_product():
    v = tf.Variable([1.0, 2.0])
    with tf.autodiff.ForwardAccumulator(v, tf.constant([1.0, 0.0])) as accumulator:
        with tf.GradientTape() as tape:
            y = tf.reduce_prod(v) ** 2
        gradient = tape.gradient(y, v)
    assert accumulator.jvp(gradient).tolist() == [8.0, 8.0]


def test_products_of_lookups_are_dense():
    table = tf.Variable([[1.0], [2.0]])
    with tf.autodiff.ForwardAccumulator(table, tf.constant([[10.0], [20.0]])) as accumulator:
        rows = tf.gather(table, [1, 0, 1]) ** 2
    assert accumulator.jvp(rows).tolist() == [[80.0], [20.0], [80.0]]


def test_tangents_have_the_shape_of_the_primals():
    with pytest.raises(ValueError, match="shapes of `primals`"):
        tf.autodiff.ForwardAccumulator(tf.constant([1.0, 2.0]), tf.constant(1.0))


def test_gradients_of_a_graph_with_weights_stops_and_variables():
    v = tf.Variable(3.0)

    @tf.function
    def run(x):
        y = x * x
        z = y * v + x
        other = tf.constant(1.0) * v
        return (
            tf.gradients(z, [x, v, y], grad_ys=tf.constant(2.0)),
            tf.gradients(z, x, stop_gradients=y),
            tf.gradients(other, [x], unconnected_gradients=tf.UnconnectedGradients.ZERO),
            tf.hessians(x * x * x, x),
        )

    weighted, stopped, unconnected, hessian = run(tf.constant(2.0))
    assert [float(g) for g in weighted] == [26.0, 8.0, 6.0]
    assert float(stopped[0]) == 1.0
    assert float(unconnected[0]) == 0.0
    assert float(hessian[0]) == 12.0


def test_recomputing_gives_the_same_gradient():
    v = tf.Variable(0.5)

    def chain(x):
        for _ in range(3):
            x = tf.sin(x * v)
        return x

    def gradient(f):
        with tf.GradientTape() as tape:
            y = f(tf.constant([1.0, 2.0]))
        return float(tape.gradient(y, v))

    again = tf.recompute_grad(chain)
    assert gradient(again) == pytest.approx(gradient(chain), rel=1e-6)
    assert tf.function(lambda: gradient_in_function(again, v))() == pytest.approx(gradient(chain), rel=1e-6)


def gradient_in_function(f, v):
    with tf.GradientTape() as tape:
        y = f(tf.constant([1.0, 2.0]))
    return tape.gradient(y, v)


def test_nested_accumulators_are_asked_after_both_have_ended():
    p, one = tf.constant(1.1), tf.constant(1.0)
    with tf.autodiff.ForwardAccumulator(p, one) as outer, tf.autodiff.ForwardAccumulator(p, one) as inner:
        y = p**3.5
    first = inner.jvp(y)
    np.testing.assert_allclose([first, outer.jvp(first)], [3.5 * 1.1**2.5, 3.5 * 2.5 * 1.1**1.5], rtol=1e-5)


def test_a_tensor_given_twice_is_refused():
    p, one = tf.constant(1.1), tf.constant(1.0)
    with pytest.raises(ValueError, match="multiple times"):
        tf.autodiff.ForwardAccumulator([p, p], [one, one])
