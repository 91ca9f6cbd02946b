"""What cuts a gradient, and what does not: the guide's cases of None, and functions whose results do not use something."""

import tensorflow as tf
from _facts import error, show


def gradient(f, sources, **options):
    with tf.GradientTape() as tape:
        for source in sources:
            tape.watch(source)
        y = f()
    return tape.gradient(y, sources, **options)


x, z = tf.Variable(2.0), tf.Variable(3.0)
show("not connected", gradient(lambda: z * z, [x]))
show("zeros", gradient(lambda: z * z, [x], unconnected_gradients="zero"))

for _ in range(2):
    with tf.GradientTape() as tape:
        y = x + 1
    show("variable, then tensor", tape.gradient(y, x))
    x = x + 1

matrix = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
integer = tf.constant(10)
show("integers", gradient(lambda: integer * integer, [integer]))

x0, x1 = tf.Variable(3.0), tf.Variable(0.0)
with tf.GradientTape(persistent=True) as tape:
    x1.assign_add(x0)
    y = x1**2
show("through a variable's state", [tape.gradient(y, x0), tape.gradient(y, x1)])

a, b = tf.constant(2.0), tf.constant(5.0)
first = tf.function(lambda p, q: (p * 2.0, q * 3.0))
constant = tf.function(lambda p: tf.constant(1.0))
unused = tf.function(lambda p, q: p * 2.0)
show("function, constant", gradient(lambda: constant(a), [a]))
show("function, one argument unused", gradient(lambda: unused(a, b), [a, b]))
show("function, of two results", gradient(lambda: first(a, b)[0], [a]))
show("function of the unused one", gradient(lambda: unused(b, a), [a]))
nested = tf.function(lambda p, q: unused(p, q) + 1.0)
show("function in a function", gradient(lambda: nested(a, b), [a, b]))
show("round", gradient(lambda: tf.round(a) + tf.floor(a) + tf.math.ceil(a), [a]))
show("argmax", gradient(lambda: tf.argmax([a, b]), [a, b]))
show("comparison", gradient(lambda: tf.cast(a > b, tf.float32), [a, b]))
show("shape", gradient(lambda: tf.cast(tf.shape(matrix)[0], tf.float32) * 2.0, [matrix]))
show("zeros_like", gradient(lambda: tf.zeros_like(matrix) + tf.ones_like(matrix), [matrix]))
error("no tensor", lambda: gradient(lambda: None, [a]))
