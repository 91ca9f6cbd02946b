"""When `tf.function` traces: types and shapes, Python arguments, defaults, methods, structures."""

import numpy as np
import tensorflow as tf
from _facts import error, show

traces = []


@tf.function
def double(x, scale=2):
    traces.append(1)
    return x * scale


def count(label, *args, **kwargs):
    before = len(traces)
    result = double(*args, **kwargs)
    show(label, (result, len(traces) - before))


count("float", tf.constant(1.0))
count("float again", tf.constant(2.0))
count("int", tf.constant(1))
count("shape", tf.constant([1.0]))
count("another shape", tf.constant([1.0, 2.0]))
count("default by name", tf.constant(1.0), scale=2)
count("default by position", tf.constant(1.0), 2)
count("other constant", tf.constant(1.0), 3)
count("array is a tensor", np.float32(5.0))
count("array of int64", np.array([1, 2]))
count("Python number", 3)
count("same Python number", 3)
count("other Python number", 4)
count("x by name", x=tf.constant(1.0))
show("tracing count", double.experimental_get_tracing_count() == len(traces))


class Model:
    def __init__(self, factor):
        self.factor = factor
        self.traces = 0

    @tf.function
    def call(self, x):
        self.traces += 1
        return x * self.factor


one, two = Model(2.0), Model(3.0)
show("methods", [one.call(tf.constant(1.0)), two.call(tf.constant(1.0)), one.call(tf.constant(5.0))])
show("traces of each", [one.traces, two.traces])


@tf.function
def total(items, *, names=None):
    return tf.add_n(list(items.values() if isinstance(items, dict) else items))


show("list", total([tf.constant(1.0), tf.constant(2.0)]))
show("tuple", total((tf.constant(1.0), tf.constant(2.0))))
show("dict", total({"a": tf.constant(1.0), "b": tf.constant(2.0)}, names=("a", "b")))
show("traces of structures", total.experimental_get_tracing_count())
error("missing argument", lambda: double())
error("too many arguments", lambda: double(1.0, 2, 3))


@tf.function
def outer(x):
    return inner(x) + 1


@tf.function
def inner(x):
    traces.append("inner")
    return x * 10


before = len(traces)
show("nested", [outer(tf.constant(1)), outer(tf.constant(2)), inner(tf.constant(3))])
show("Python function", double.python_function(tf.constant(2.0), 5))
show("lambda", tf.function(lambda x, y: x - y)(tf.constant(5), y=tf.constant(3)))


@tf.function(jit_compile=True)
def compiled(x):
    return tf.reduce_sum(x)


show("jit_compile", compiled(tf.ones([3])))


@tf.function
def nothing(x):
    tf.print("")


show("returns nothing", nothing(tf.constant(1)))


@tf.function
def structure(x):
    return {"a": x, "b": (x + 1, [x + 2, None])}


show("returns structures", structure(tf.constant(1)))
tf.config.run_functions_eagerly(True)
show("eagerly", tf.config.functions_run_eagerly())
show("eager result", double(tf.constant(1.0)).numpy() + 0.5)
tf.config.run_functions_eagerly(False)
