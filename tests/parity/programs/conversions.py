"""What becomes a tensor: by functions that are registered, by hints, and what is refused since no number would be left."""

import numpy as np
import tensorflow as tf


class Degrees:
    def __init__(self, value):
        self.value = value


class Kelvin(Degrees):
    pass


def convert(value, dtype=None, name=None, as_ref=False):
    return tf.constant(value.value, dtype)


tf.register_tensor_conversion_function(Degrees, convert)


def show(name, function):
    try:
        print(name, function())
    except Exception as error:
        print(name, type(error).__name__)


degrees, one = Degrees(2.0), tf.constant(1.0)
show("converted", lambda: tf.convert_to_tensor(degrees))
show("to a type", lambda: tf.convert_to_tensor(degrees, tf.float64))
show("with a hint", lambda: tf.convert_to_tensor(degrees, dtype_hint=tf.float64))
show("operators", lambda: (one + degrees, degrees * one, one > degrees, tf.add(degrees, one)))
show("stacked", lambda: tf.stack([degrees, one]))
show("functions", lambda: (tf.reduce_sum(Degrees([1.0, 2.0])), tf.cast(Degrees([1.0, 2.5]), tf.int32)))
show("product", lambda: tf.matmul(Degrees([[1.0, 2.0]]), Degrees([[1.0], [2.0]])))
show("compiled", lambda: tf.function(lambda x: x + degrees)(one))
show("argument", lambda: tf.function(lambda x: one + x)(degrees))
show("is a tensor", lambda: tf.is_tensor(degrees))
show("of a subclass", lambda: tf.convert_to_tensor(Kelvin(1.0)))
tf.register_tensor_conversion_function(Kelvin, lambda *args, **kwargs: NotImplemented, 1)
show("by the next", lambda: tf.convert_to_tensor(Kelvin(1.0)))
show("of numbers", lambda: tf.register_tensor_conversion_function(int, convert))
show("of no class", lambda: tf.register_tensor_conversion_function("a", convert))
show("no function", lambda: tf.register_tensor_conversion_function(dict, 1))
show("not registered", lambda: tf.convert_to_tensor(object()))


class Threefold:
    def __init__(self, variable):
        self.variable = variable


tf.register_tensor_conversion_function(Threefold, lambda value, dtype=None, name=None, as_ref=False: value.variable * 3)
variable = tf.Variable(2.0)
with tf.GradientTape() as tape:
    y = tf.square(Threefold(variable))
show("gradient", lambda: tape.gradient(y, variable))
show("another type", lambda: tf.convert_to_tensor(Threefold(variable), tf.int32))

integer = tf.constant(1)
show("hint", lambda: tf.convert_to_tensor([integer, np.float64(2.5)], dtype_hint=tf.float32))
show("hint of a number", lambda: tf.convert_to_tensor([integer, 2.5], dtype_hint=tf.float32))
show("hint of integers", lambda: tf.convert_to_tensor([tf.constant(1.5), 2], dtype_hint=tf.int32))
show("texts", lambda: tf.convert_to_tensor([tf.constant("a"), "b"]))
show(
    "no texts",
    lambda: (tf.constant([], tf.string), tf.constant(np.array([], "U3")).dtype, tf.zeros([0], tf.string).dtype),
)
show("large", lambda: tf.constant([1e40, 1.0]))
show("large, of a type", lambda: (tf.constant(1e40, tf.float64), tf.constant(1e40, tf.float32)))
show("infinite", lambda: tf.constant([float("inf"), -float("inf"), float("nan")]))
show("large in fill", lambda: tf.fill([2], 1e40))
show("large in a variable", lambda: tf.Variable(1e40))
show("large integers", lambda: (tf.constant(10**30, tf.float32), tf.constant([2**63], tf.float64)))
show("too large", lambda: tf.constant(2**63))
show("a range of floats", lambda: list(tf.data.Dataset.range(3.7)))
show("a range up to a float", lambda: list(tf.data.Dataset.range(1, 4.0)))
show("segments", lambda: tf.math.segment_sum(tf.constant([1.0]), tf.constant([0, 1])))
show("negative segments", lambda: tf.math.segment_sum(tf.constant([1.0, 2.0]), tf.constant([-1, 0])))
show("not square", lambda: tf.linalg.cholesky(tf.ones([2, 3])))
show("a vector", lambda: tf.linalg.cholesky(tf.ones([2])))
show("unlike", lambda: tf.linalg.solve(tf.ones([2, 2]), tf.ones([3, 1])))
