"""What control flow on tensors refuses."""

import tensorflow as tf
from _facts import error, show

x = tf.constant(1.0)


@tf.function
def undefined_in_else(x):
    if x > 0:
        y = 1
    return y


@tf.function
def no_return_in_else(x):
    if x > 0:
        return 1.0


@tf.function
def changing_dtype(x):
    i = 0
    while x > 0:
        i = i + tf.constant(1.5)
        x -= 1
    return i


@tf.function
def other_dtype_in_else(x):
    if x > 0:
        y = tf.constant(1)
    else:
        y = tf.constant(1.0)
    return y


@tf.function
def changing_shape(x):
    y = tf.ones([1])
    for _ in tf.range(tf.cast(x, tf.int32)):
        y = tf.concat([y, y], 0)
    return y


@tf.function(autograph=False)
def tensor_as_bool(x):
    if x > 0:
        return 1
    return 0


@tf.function
def none_and_tensor(x):
    y = None
    if x > 0:
        y = x
    return y


for function in (
    undefined_in_else,
    no_return_in_else,
    changing_dtype,
    other_dtype_in_else,
    changing_shape,
    tensor_as_bool,
    none_and_tensor,
):
    error(function.python_function.__name__, lambda: function(x))
show("eager bool", bool(x > 0))
error("bool of many", lambda: bool(tf.constant([True, False])))


@tf.function
def iterate_scalar(x):
    for _ in x:
        pass


error("iterate over a scalar", lambda: iterate_scalar(x))
