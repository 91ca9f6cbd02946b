"""`tf.custom_gradient` where JAX differentiates: in Keras's `fit`, in replicas, under `jax.grad`."""

import jax
import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf


@tf.custom_gradient
def rounded(x):
    """Round, with the gradient of the identity."""
    return tf.round(x), lambda upstream: upstream


@tf.custom_gradient
def reversed_gradient(x):
    return tf.identity(x), lambda upstream: -upstream


def test_gradient_under_jax_grad_is_the_custom_one():
    x = tf.constant([0.2, 1.7])
    np.testing.assert_allclose(jax.grad(lambda x: tf.reduce_sum(rounded(x) * 3))(x), [3.0, 3.0])
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: tf.reduce_sum(rounded(x) * x)))(x), [0.2, 3.7], rtol=1e-6)


def test_keras_fit_uses_the_custom_gradient():
    """Each step subtracts the gradient of the mean of w * x; reversed, it adds it."""

    class Reverse(keras.layers.Layer):
        def build(self, shape):
            self.w = self.add_weight(shape=(), initializer="zeros")

        def call(self, x):
            return reversed_gradient(self.w) * x

    model = keras.Sequential([keras.Input((1,)), Reverse()])
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss=lambda y, prediction: prediction - y * 0)
    model.fit(np.ones((8, 1), "float32"), np.zeros((8, 1), "float32"), batch_size=8, epochs=3, verbose=0)
    np.testing.assert_allclose(model.get_weights()[0], 0.3, rtol=1e-6)


def test_trainable_variables_inside_get_their_gradients_under_jax_grad_too():
    v = keras.Variable(4.0)

    @tf.custom_gradient
    def fn(x):
        return x * v, lambda upstream, variables: (upstream * 2, [upstream * 7 for _ in variables])

    def loss(value, x):
        with keras.StatelessScope(state_mapping=[(v, value)]):
            return fn(x)

    by_variable, by_x = jax.grad(loss, (0, 1))(tf.constant(4.0), tf.constant(3.0))
    assert (float(by_variable), float(by_x)) == (7.0, 2.0)


def test_replicas_use_the_custom_gradient():
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    with strategy.scope():
        v = tf.Variable(2.0)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            y = reversed_gradient(v) * 3.0
        return tape.gradient(y, v)

    assert [float(g) for g in strategy.run(step).values] == [-3.0, -3.0]


def test_decorator_with_brackets_works_too():
    @tf.custom_gradient()
    def fn(x):
        """Documented."""
        return x * 1.0, lambda upstream: upstream * 5.0

    x = tf.Variable(1.0)
    with tf.GradientTape() as tape:
        y = fn(x)
    assert float(tape.gradient(y, x)) == 5.0
    assert fn.__name__ == "fn"
    assert fn.__doc__ == "Documented."


def test_gradient_may_depend_on_values_in_python():
    @tf.custom_gradient
    def fn(x):
        return x * 1.0, lambda upstream: upstream * 2.0 if float(upstream) > 0 else upstream

    x = tf.constant(1.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y, z = fn(x) * 3.0, fn(x) * -3.0
    assert float(tape.gradient(y, x)) == 6.0
    assert float(tape.gradient(z, x)) == -3.0


def test_none_for_an_argument_is_no_gradient():
    @tf.custom_gradient
    def fn(x, y):
        return x * y, lambda upstream: (upstream, None)

    x, y = tf.constant(2.0), tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch([x, y])
        z = fn(x, y)
    found = tape.gradient(z, [x, y])
    assert float(found[0]) == 1.0
    assert found[1] is None
    assert [float(g) for g in jax.grad(fn, (0, 1))(x, y)] == [1.0, 0.0]


@pytest.mark.parametrize("compiled", [False, True])
def test_stop_gradient_takes_tensor_likes_and_variables(compiled):
    v = tf.Variable([1.0, 2.0])

    def step():
        with tf.GradientTape() as tape:
            y = tf.stop_gradient(v) * v
        return tape.gradient(y, v)

    np.testing.assert_allclose((tf.function(step) if compiled else step)(), [1.0, 2.0])
    np.testing.assert_allclose(tf.stop_gradient([1.0, 2.0]), [1.0, 2.0])


def test_recomputed_functions_take_and_give_dictionaries_whose_keys_have_no_order():
    a, b = tf.Variable([1.0, 2.0]), tf.Variable(3.0)
    double = tf.recompute_grad(lambda values: {key: value * 2.0 for key, value in values.items()})
    with tf.GradientTape() as tape:
        results = double({b.ref(): b, a.ref(): a})
        total = tf.reduce_sum(results[a.ref()]) + results[b.ref()]
    assert float(total) == 12
    assert [gradient.numpy().tolist() for gradient in tape.gradient(total, [a, b])] == [[2, 2], 2]
