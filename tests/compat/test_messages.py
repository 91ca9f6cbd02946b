"""What a program's mistakes are told in: TensorFlow's words, not those of the libraries below it."""

import pickle

import jax
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

keras = tf.keras
FOREIGN = ("jnp", "jax_fn", "racer", "ArrayImpl", "docs.jax")
kept = []


@tf.function
def keep(x):
    kept.append(x * 2)
    return x


class Branching(keras.Model):
    def call(self, x):
        return x if tf.reduce_sum(x) > 0 else -x


class Multiplying(keras.Model):
    def call(self, x):
        return tf.matmul(x, x)


def use_left_tensor():
    keep(tf.constant(1.0))
    return kept[-1] + 1


def fit(model):
    model.compile("sgd", "mse")
    model.fit(np.ones((4, 2)), np.ones((4, 2)), verbose=0)


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (lambda: tf.function(lambda x: x.numpy())(tf.constant(1.0)), "Return it, or use `tf.print`"),
        (use_left_tensor, "Return it from there"),
        (lambda: fit(Branching()), "Use `tf.cond` or `tf.where`"),
        (lambda: fit(Multiplying()), "Matrix size-incompatible"),
        (lambda: Multiplying()(np.ones((4, 2))), r"x=tf.Tensor\(shape=\(4, 2\), dtype=float32\)"),
        (lambda: keras.Input((3,)).__jax_array__(), "call the function in a layer"),
        (lambda: jax.jit(lambda x: np.sin(x))(tf.constant(1.0)), "TensorFlow's functions in place of NumPy's"),
        (lambda: jax.jit(lambda x: range(x))(tf.constant(1)), "cannot be a number of Python's"),
        (lambda: jax.jit(lambda x: x[x > 0])(tf.constant([1])), "Use `tf.boolean_mask`"),
        (lambda: jax.jit(lambda x: float(x))(tf.constant(1.0)), "it is needed here"),
    ],
)
def test_a_mistake_is_told_in_the_words_of_tensorflow(mistake, said):
    with pytest.raises(Exception, match=said) as caught:
        mistake()
    assert not [word for word in FOREIGN if word in str(caught.value)]


def test_errors_about_missing_values_can_be_pickled():
    with pytest.raises(jax.errors.TracerArrayConversionError) as caught:
        jax.jit(lambda x: np.sin(x))(tf.constant(1.0))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
