"""Functions with gradients of the program's own."""

import tensorflow as tf
from _facts import error, show

w = tf.Variable(3.0, name="w")


@tf.custom_gradient
def clipped(x):
    return tf.identity(x), lambda up: tf.clip_by_value(up, -1.0, 1.0)


@tf.custom_gradient
def two(x, y):
    def grad(a, b):
        return a * 10.0, b * 100.0

    return (x + y, x * y), grad


@tf.custom_gradient
def with_variable(x):
    def grad(up, variables=None):
        return up * 7.0, [up * 11.0 for _ in variables]

    return x * w, grad


@tf.custom_gradient
def without_argument(x):
    return x * w, lambda up: up


def gradients(fn, *sources):
    with tf.GradientTape() as tape:
        for source in sources:
            tape.watch(source)
        y = fn(*sources)
    return tape.gradient(y, [*sources, w])


a, b = tf.constant(2.0), tf.constant(5.0)
show("clipped", gradients(lambda x: clipped(x) * 50.0, a))
show("two results", gradients(lambda x, y: two(x, y), a, b))
show("one result used", gradients(lambda x, y: two(x, y)[1] * 2.0, a, b))
show("variables", gradients(with_variable, a))
error("variables not taken", lambda: gradients(without_argument, a))
show("nested", gradients(lambda x: clipped(with_variable(x) * 4.0), a))
show("in a function", gradients(tf.function(with_variable), a))
show("tape and all in a function", tf.function(lambda x: gradients(with_variable, x))(a))
show("on a variable", gradients(lambda: clipped(w) * 9.0))


@tf.custom_gradient
def wrong(x, y):
    return x + y, lambda up: (up,)


error("too few gradients", lambda: gradients(wrong, a, b))


@tf.custom_gradient
def none(x, y):
    return x * y, lambda up: (up, None)


show("None for one", gradients(none, a, b))


class Layer:
    scale = 2.0

    @tf.custom_gradient
    def call(self, x):
        return x * self.scale, lambda up: (None, up * 77.0)


show("log1pexp", gradients(tf.custom_gradient(lambda x: (tf.math.log(1 + tf.exp(x)), lambda up: up * 0.5)), a))
show("keyword", gradients(lambda x: tf.custom_gradient(lambda x, k=1.0: (x * k, lambda up: up * k))(x, k=4.0), a))
error("not a pair", lambda: gradients(tf.custom_gradient(lambda x: x * 2.0), a))
