"""`tf.experimental.numpy`: types of 64 bits in functions, under tapes and in replicas, with JAX's switch off."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

tnp = tf.experimental.numpy


def test_float64_goes_through_functions_and_tapes():
    v = tf.Variable(np.array([1.0, 2.0]))

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = tnp.sum(tnp.exp(tnp.matmul(v[None], tnp.array([[0.1, 0.2], [0.3, 0.4]]))) * x)
        return y, tape.gradient(y, v)

    y, gradient = step(tf.constant(2.0, tf.float64))
    exponents = np.exp(np.array([1.0, 2.0]) @ [[0.1, 0.2], [0.3, 0.4]])
    np.testing.assert_allclose(y, 2 * exponents.sum(), rtol=1e-14)
    np.testing.assert_allclose(gradient, 2 * np.array([[0.1, 0.2], [0.3, 0.4]]) @ exponents, rtol=1e-14)
    assert y.dtype == tf.float64 == gradient.dtype


def test_float32_stays_what_it_is():
    x = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        y = tnp.mean(tnp.sin(x) + 1)
    assert y.dtype == tf.float32 == tape.gradient(y, x).dtype


def test_jaxs_switch_is_as_before():
    tnp.add([1.0], [2.0])
    with pytest.raises(TypeError):
        tnp.add([1.0], "text")
    assert jnp.asarray(1.0).dtype == np.float32 and not jax.config.jax_enable_x64


def test_replicas_use_it():
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    total = strategy.run(lambda x: tnp.sum(tnp.square(x)), (tf.constant([1.0, 2.0]),))
    assert strategy.experimental_local_results(total)[0] == 5.0


def test_draws_have_numpys_types_and_repeat():
    tnp.random.seed(4)
    first = tnp.random.randn(3), tnp.random.uniform(2, [3, 4]), tnp.random.randint(2, 5, [50])
    tnp.random.seed(4)
    again = tnp.random.randn(3), tnp.random.uniform(2, [3, 4]), tnp.random.randint(2, 5, [50])
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
    assert first[0].dtype == tf.float64 and first[2].dtype == tf.int64
    assert set(first[2].numpy().tolist()) == {2, 3, 4} and (first[1].numpy() >= 2).all()


def test_behaviour_of_numpy_is_on_already():
    tnp.experimental_enable_numpy_behavior()
    assert tf.constant([[1, 2]]).T.shape == (2, 1) and tf.constant([1.5]).astype("int32")[0] == 1
    with pytest.raises(NotImplementedError, match=r"tf\.cast"):
        tnp.experimental_enable_numpy_behavior(prefer_float32=True)
