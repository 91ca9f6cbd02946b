import numpy as np
import tensorflow as tf
from _show import show

a = tf.Variable(np.ones([2, 2], np.float32))
v = tf.constant(1.0)


@tf.function
def fn():
    r = tf.while_loop(lambda i, _: i < 2, lambda i, x: (i + 1, x * tf.reduce_sum(a) * v), [0, 1.0])[1]
    return tf.gradients(r, [v])[0]


show("W1 tf.gradients wrt captured through while_loop", fn)


@tf.function
def fn2():
    with tf.GradientTape() as t:
        t.watch(v)
        r = tf.while_loop(lambda i, _: i < 2, lambda i, x: (i + 1, x * tf.reduce_sum(a) * v), [0, 1.0])[1]
    return t.gradient(r, v)


show("W1b tape wrt captured through while_loop", fn2)


@tf.function
def fn3(n):
    with tf.GradientTape() as t:
        t.watch(v)
        r = tf.while_loop(lambda i, _: i < n, lambda i, x: (i + 1, x * tf.reduce_sum(a) * v), [0, 1.0])[1]
    return t.gradient(r, v)


show("W1c tape, unknown bound", lambda: fn3(tf.constant(2)))


@tf.function
def fn4(n):
    x = tf.constant(2.0)
    r = tf.while_loop(lambda i, _: i < n, lambda i, y: (i + 1, y * y), [0, x])[1]
    return tf.gradients(r, x)[0]


show("W2 tf.gradients wrt loop var, unknown bound", lambda: fn4(tf.constant(2)))


@tf.function
def fn5():
    x = tf.constant(2.0)
    r = tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, y * y), [0, x])[1]
    return tf.gradients(r, x)[0]


show("W2b tf.gradients wrt loop var, known bound", fn5)


@tf.function
def fn6():
    var = a
    r = tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, y + tf.reduce_sum(var)), [0, 0.0])[1]
    return tf.gradients(r, var)[0]


show("W3 tf.gradients wrt variable", fn6)


def tf_(x):
    cond = tf.constant(-1)
    if cond == 0:
        result = x
    else:
        result = x
    return result


@tf.function
def mc(x):
    return tf.map_fn(tf_, x)


show("M1 autograph in map_fn", lambda: mc(tf.constant([1])))


def tf2_(x):
    if x > 0:
        return x
    return -x


@tf.function
def mc2(x):
    return tf.map_fn(tf2_, x)


show("M1b autograph in map_fn", lambda: mc2(tf.constant([1, -2])))
show("M2 map_fn sparse", lambda: tf.map_fn(lambda x: x, tf.sparse.SparseTensor([[0, 0]], [1], [2, 2])))
show(
    "M3 map_fn to text",
    lambda: tf.map_fn(lambda x: tf.constant(""), tf.constant([0, 1]), fn_output_signature=tf.string),
)
show("M4 map_fn of []", lambda: tf.map_fn(lambda x: x, []))
