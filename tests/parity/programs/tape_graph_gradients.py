"""`tf.gradients` in functions: through loops, by captured tensors, loop variables and variables that are assigned."""

import tensorflow as tf
from _facts import show

c = tf.constant(2.0)
scale = tf.constant([1.0, 2.0])
v = tf.Variable([1.0, 3.0])


def in_function(label, fn, *args):
    show(label, tf.function(fn)(*args))


def power(base, times):
    return tf.while_loop(lambda i, _: i < times, lambda i, a: (i + 1, a * base), [0, 1.0])[1]


in_function("captured tensor", lambda: tf.gradients(c * c * 3.0, c))
in_function("captured tensors, one unused", lambda: tf.gradients(tf.reduce_sum(c * scale), [c, scale]))
in_function("unconnected", lambda: tf.gradients(c * 2.0, [scale], unconnected_gradients="zero"))
in_function("captured in a loop", lambda: tf.gradients(power(c, 3), [c]))
in_function("captured in a loop, bound not known", lambda n: tf.gradients(power(c, n), [c]), tf.constant(5))
in_function("captured in a loop that does not run", lambda n: tf.gradients(power(c, n), [c]), tf.constant(0))
in_function("argument in a loop", lambda x, n: tf.gradients(power(x, n), x), tf.constant(1.5), tf.constant(4))


@tf.function
def squares(n):
    x = tf.constant(1.1)
    y = tf.while_loop(lambda i, _: i < n, lambda i, a: (i + 1, a * a), [0, x])[1]
    return tf.gradients(y, x)


show("loop variable", squares(tf.constant(3)))
in_function("variable in a loop", lambda: tf.gradients(power(tf.reduce_sum(v), 2), v))
in_function(
    "maximum_iterations",
    lambda: tf.gradients(
        tf.while_loop(lambda i, _: i < 9, lambda i, a: (i + 1, a * c), [0, 1.0], maximum_iterations=4)[1], c
    ),
)


@tf.function
def converted(x, n):
    y = x
    while tf.reduce_sum(y) < n:
        if y[0] > 2.0:
            y = y * x
        else:
            y = y + x * c
    return tf.gradients(y, [x, c])


show("AutoGraph", converted(tf.constant([1.5, 2.0]), tf.constant(50.0)))


@tf.function
def nested(x, n):
    outer = lambda i, a: (i + 1, a + tf.while_loop(lambda j, _: j < i, lambda j, b: (j + 1, b * x), [0, a])[1])
    y = tf.while_loop(lambda i, _: i < n, outer, [0, x])[1]
    return tf.gradients(y, x)


show("loop in a loop", nested(tf.constant(1.1), tf.constant(4)))


@tf.function
def twice(x, n):
    (first,) = tf.gradients(power(x, n), x)
    return first, tf.gradients(first, x)


show("gradient of a gradient", twice(tf.constant(1.5), tf.constant(4)))


@tf.function
def assigned():
    before = v * 2.0
    v.assign_add([1.0, 1.0])
    after = v * v
    return tf.gradients(before, v) + tf.gradients(after, v) + tf.gradients([before, after], v)


show("variable that is assigned", assigned())
in_function("gradient of itself", lambda: tf.gradients(c, c))
in_function("stop_gradients", lambda x: tf.gradients(c * c + x * 2.0 * c, c, stop_gradients=[x * 1.0, x]), scale)
