"""Gradients where functions have kinks, as TensorFlow has them."""

import math

import jax
import jax.numpy as jnp
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow._ops import _subgradients

# At 0 and then on both sides of it.
_AT = [0.0, -1.0, 2.0]
_SELU = 1.0507009873554805
_KINKS = {
    "maximum": (lambda x: tf.maximum(x, 0.0), [1, 0, 1]),
    "maximum_right": (lambda x: tf.maximum(0.0, x), [0, 0, 1]),
    "maximum_same": (lambda x: tf.maximum(x, x), [1, 1, 1]),
    "maximum_broadcast": (lambda x: tf.maximum(x, tf.zeros([2, 3])), [2, 0, 2]),
    "minimum": (lambda x: tf.minimum(x, 0.0), [1, 1, 0]),
    "minimum_right": (lambda x: tf.minimum([0.0, 0.0, 0.0], x), [0, 1, 0]),
    "clip_by_value": (lambda x: tf.clip_by_value(x, 0.0, 2.0), [1, 0, 1]),
    "clip_by_value_bounds": (lambda x: tf.clip_by_value(0.0, x, 2.0 * x), [0, 1, 1]),
    "clip_by_norm": (lambda x: tf.clip_by_norm(3.0 + x[:1], 3.0), [0, 0, 0]),
    "abs": (tf.abs, [0, -1, 1]),
    "abs_operator": (lambda x: abs(x * 1.0), [0, -1, 1]),
    "norm": (lambda x: tf.norm(x, ord=1), [0, -1, 1]),
    "total_variation": (lambda x: tf.image.total_variation(tf.reshape(x * [1.0, 0.0, 1.0], [1, 3, 1])), [0, 0, 1]),
    "relu": (tf.nn.relu, [0, 0, 1]),
    "leaky_relu": (tf.nn.leaky_relu, [0.2, 0.2, 1]),
    "elu": (tf.nn.elu, [1, math.exp(-1), 1]),
    "selu": (tf.nn.selu, [_SELU, 1.6732632423543772 * _SELU * math.exp(-1), _SELU]),
    "sigmoid_cross_entropy": (
        lambda x: tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.ones([3]), logits=x),
        [-0.5, -0.7310585786, -0.1192029220],
    ),
    # TensorFlow's own, although the function is smooth there.
    "weighted_cross_entropy": (
        lambda x: tf.nn.weighted_cross_entropy_with_logits(tf.zeros([3]), x, 1.0),
        [1, 0.2689414214, 0.8807970780],
    ),
}


@pytest.mark.parametrize("name", _KINKS)
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_at_kinks_are_those_of_tensorflow(name, compiled):
    function, expected = _KINKS[name]

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return tape.gradient(y, x)

    found = (tf.function(gradient) if compiled else gradient)(tf.constant(_AT))
    assert found.numpy().tolist() == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_second_derivatives_at_kinks():
    x = tf.Variable([0.0, 0.0])
    with tf.GradientTape(persistent=True) as outer:
        with tf.GradientTape() as tape:
            y = tf.maximum(x, 0.0) * x + tf.nn.elu(x) + tf.nn.selu(x) + tf.abs(x)
        slope = tape.gradient(y, x)
    assert outer.gradient(slope, x).numpy().tolist() == [2.0, 2.0]


@pytest.mark.parametrize("function", [tf.maximum, tf.minimum])
def test_nan_stays(function):
    found = function([math.nan, 1.0], [1.0, math.nan]).numpy()
    assert all(map(math.isnan, found))


def test_whole_numbers_have_no_kinks():
    assert tf.maximum(tf.constant([1, 3], tf.uint8), 2).numpy().tolist() == [2, 3]
    assert abs(tf.constant([-3, 2])).numpy().tolist() == [3, 2]


def test_kinks_cost_what_those_of_jax_cost():
    def costs(maximum, minimum, absolute):
        def loss(w, x):
            return jnp.sum(jnp.square(absolute(maximum(minimum(x @ w, 1.0), 0.0) @ w)))

        compiled = jax.jit(jax.grad(loss)).lower(jnp.ones((64, 64)), jnp.ones((8, 64))).compile()
        return compiled.cost_analysis()["flops"], compiled.memory_analysis().temp_size_in_bytes

    ours = costs(_subgradients.maximum, _subgradients.minimum, _subgradients.absolute)
    assert all(mine <= jaxs for mine, jaxs in zip(ours, costs(jnp.maximum, jnp.minimum, jnp.abs), strict=True))
