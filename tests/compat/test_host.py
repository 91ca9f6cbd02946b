"""Sizes that come from tensors: known while functions are traced, symbols where Keras asks for shapes."""

import jax
import numpy as np
import pytest
from jax import export

import tfdist_jax.compat.tensorflow as tf


def in_program(fn, *args):
    return tf.function(fn)(*args)


USES = {
    "reshape": lambda x: tf.reshape(x, [tf.shape(x)[1], -1]),
    "zeros": lambda x: tf.zeros([tf.shape(x)[0], 4]),
    "whole_shape": lambda x: tf.ones(tf.shape(x)),
    "arithmetic": lambda x: tf.zeros([tf.shape(x)[0] * 2 + 1 - tf.rank(x)]),
    "concat": lambda x: tf.zeros(tf.concat([tf.shape(x)[:-1], [7]], 0)),
    "stack": lambda x: tf.zeros(tf.stack([tf.size(x), 2])),
    "reduce_prod": lambda x: tf.reshape(x, [tf.reduce_prod(tf.shape(x))]),
    "functions": lambda x: tf.zeros([tf.maximum(tf.math.floordiv(tf.shape(x)[1], 2), 1)]),
    "range": lambda x: tf.range(tf.shape(x)[1]),
    "unstack": lambda x: tf.zeros([n + 1 for n in tf.unstack(tf.shape(x))]),
    "unpacking": lambda x: tf.zeros([tf.shape(x)[1] for _ in tf.shape(x)]),
    "gather": lambda x: tf.zeros([tf.gather(tf.shape(x), 1)]),
    "random": lambda x: tf.random.normal(tf.shape(x)),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_sizes_can_be_used_as_sizes_while_tracing(use):
    x = tf.zeros([2, 3])
    assert in_program(use, x).shape == use(x).shape


def test_sizes_act_as_tensors():
    sizes = tf.shape(tf.zeros([2, 3]))
    assert tf.is_tensor(sizes) and sizes.dtype == tf.int32 and sizes.shape == (2,) and sizes.get_shape().rank == 1
    assert type(sizes[0].numpy()) is np.int32 and (sizes + 1).numpy().tolist() == [3, 4]
    assert repr(sizes[0]) == "<tf.Tensor: shape=(), dtype=int32, numpy=2>"
    assert float(tf.constant(6.0) / tf.cast(sizes[1], tf.float32)) == 2
    sizes.set_shape([2])
    with pytest.raises(ValueError, match="not compatible"):
        sizes.set_shape([3])


def test_function_of_sizes_from_traced_values_runs_as_python():
    assert in_program(lambda n: tf.zeros([n]), tf.constant(3)).shape == [3]
    assert in_program(lambda x, n: x[1:n], tf.range(5), tf.constant(3)).tolist() == [1, 2]


def test_size_that_follows_from_constants_is_known():
    size = lambda: tf.constant(2) * 3
    function = tf.function(lambda x: x[: size()] + tf.zeros([size()]))
    assert function(tf.ones([8])).shape == [6] and function.lower(tf.ones([8]))


def test_sizes_from_traced_values_have_a_remedy_where_nobody_can_run_python():
    with pytest.raises(RuntimeError, match="Compute it from Python numbers or from"):
        jax.jit(lambda n: tf.zeros([n]))(3)
    with pytest.raises(RuntimeError, match="A slice ends at a place that is not known"):
        jax.jit(lambda x, n: x[:n])(tf.ones([3]), 3)


SYMBOLIC = {
    "reshape": (lambda x, n: tf.reshape(x, [n, -1]), "(d, 3)"),
    "whole_shape": (lambda x, n: tf.zeros(tf.shape(x)), "(d, 3)"),
    "arithmetic": (lambda x, n: tf.ones((n * 2, 1)), "(2*d, 1)"),
    "concat": (lambda x, n: tf.zeros(tf.concat([tf.shape(x)[:-1], [7]], 0)), "(d, 7)"),
    "stack": (lambda x, n: tf.zeros(tf.stack([n, 4])), "(d, 4)"),
    "reduce_prod": (lambda x, n: tf.reshape(x, [tf.reduce_prod(tf.shape(x))]), "(3*d,)"),
    "cast": (lambda x, n: x / tf.cast(n, tf.float32), "(d, 3)"),
    "known_part": (lambda x, n: tf.zeros(tf.shape(x)[1:]), "(3,)"),
    "slice_of_shape": (lambda x, n: tf.zeros(x.shape[:1].concatenate([2])), "(d, 2)"),
    "list_of_shape": (lambda x, n: tf.tile(tf.ones([1, 3]), [x.shape.as_list()[0], 1]), "(d, 3)"),
    "random": (lambda x, n: tf.random.stateless_normal([n, 2], [1, 2]), "(d, 2)"),
}


@pytest.mark.parametrize(("use", "shape"), SYMBOLIC.values(), ids=SYMBOLIC)
def test_sizes_may_be_symbols(use, shape):
    (d,) = export.symbolic_shape("(d)", constraints=["d>=2"])
    asked = jax.ShapeDtypeStruct((d, 3), "float32")
    assert str(jax.eval_shape(lambda x: use(x, tf.shape(x)[0]), asked).shape) == shape


def test_symbols_are_shown_as_int32():
    (d,) = export.symbolic_shape("(d)", constraints=["d>=2"])
    found = []
    jax.eval_shape(lambda x: found.append(tf.shape(x)), jax.ShapeDtypeStruct((d, 3), "float32"))
    assert found[0].dtype == tf.int32 and found[0].has_symbols and not found[0][1:].has_symbols


def test_f_strings_write_texts_and_sizes_as_numpy_does():
    texts = tf.constant(["a", "b"])
    assert f"{texts} {texts[0]}" == "[b'a' b'b'] b'a'"
    written = []
    in_program(lambda x: written.append(f"{tf.shape(x)} {tf.shape(x)[1]:03d}"), tf.ones([4, 2]))
    assert written == ["[4 2] 002"]


def test_texts_are_of_the_class_of_tensors_to_programs():
    text = tf.constant("a")
    assert isinstance(text, type(tf.constant(0)))
    assert not isinstance(b"a", type(tf.constant(0))) and not isinstance(text, bytes)
