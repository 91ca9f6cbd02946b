"""Forward accumulators in each other and in tapes, asked after they have ended; functions that do not use what is followed."""

import tensorflow as tf
from _facts import error, show

Accumulator = tf.autodiff.ForwardAccumulator
p, one = tf.constant(1.1), tf.constant(1.0)

with Accumulator(p, one) as outer, Accumulator(p, one) as inner:
    y = p**3.5
first = inner.jvp(y)
show("second derivative, asked outside", [first, outer.jvp(first)])
with Accumulator(p, one) as outer:
    with Accumulator(p, one) as inner:
        y = p**3.5
    first = inner.jvp(y)
show("asked inside of the outer one", [first, outer.jvp(first)])
with Accumulator(p, one) as third, Accumulator(p, one) as second, Accumulator(p, one) as inner:
    y = p**4
first = inner.jvp(y)
show("third derivative", third.jvp(second.jvp(first)))

x, v = tf.constant([1.0, 2.0]), tf.constant([0.5, -1.0])
with tf.GradientTape() as tape:
    tape.watch(x)
    with Accumulator(x, v) as accumulator:
        y = tf.reduce_sum(x**3)
show("tape around, asked outside", tape.gradient(accumulator.jvp(y), x))
w = tf.Variable(3.0)
with tf.GradientTape() as tape, Accumulator(w, 2.0) as accumulator:
    y = w**3
show("variable, tape around", tape.gradient(accumulator.jvp(y), w))


def followed(f, *args):
    with Accumulator(p, one) as accumulator:
        result = f(p, *args)
    return accumulator.jvp(result)


show("unused argument of a function", followed(tf.function(lambda x: tf.constant(1.0))))
show("results of which one depends on it", followed(tf.function(lambda x, y: (x * 2.0, y * 3.0)), one))
error("one tensor twice", lambda: Accumulator([p, p], [one, one]))


def assigned():
    u = tf.Variable(1.0)
    with Accumulator(u, 11.0) as accumulator:
        u.assign_sub(0.5)
        y = u * 2.0
    return [u, accumulator.jvp(y)]


show("assigned", assigned())
