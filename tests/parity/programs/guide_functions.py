"""The guides to graphs and tf.function: tracing, polymorphism, side effects, state, control flow."""

import tensorflow as tf
from _facts import error, show

traces = []


@tf.function
def double(a):
    traces.append(type(a).__name__ in ("int", "str"))
    return a + a


show("int, float and string", [double(tf.constant(1)), double(tf.constant(1.1)), double(2)])
show("traces", len(traces))
double(tf.constant(7))
double(3)
show("again, and with another Python number", len(traces))
concrete = double.get_concrete_function(tf.TensorSpec(shape=[], dtype=tf.int32))
show("concrete", concrete(tf.constant(5)))
error("concrete with another type", lambda: concrete(tf.constant(1.5)))


@tf.function(input_signature=(tf.TensorSpec(shape=[None], dtype=tf.int32),))
def next_collatz(x):
    return tf.where(x % 2 == 0, x // 2, 3 * x + 1)


show("signature", next_collatz(tf.constant([1, 2])))
error("of another rank", lambda: next_collatz(tf.constant([[1, 2], [3, 4]])))


@tf.function
def shrink(x):
    while tf.reduce_sum(x) > 1:
        x = tf.tanh(x)
    return x


show("while", bool(tf.reduce_sum(shrink(tf.constant([0.5, 0.9, 0.3]))) <= 1))


counter = tf.Variable(0)
external = []


@tf.function
def side_effect(x):
    external.append(1)
    counter.assign_add(x)
    return counter.read_value()


show("state", [side_effect(tf.constant(2)), side_effect(tf.constant(3))])
show("Python ran", len(external))


class Count(tf.Module):
    """A counter that makes its variable in the first call."""

    def __init__(self):
        self.count = None

    @tf.function
    def __call__(self):
        if self.count is None:
            self.count = tf.Variable(0)
        return self.count.assign_add(1)


c = Count()
show("counts", [c(), c()])


@tf.function
def makes_variables(x):
    return tf.Variable(1.0) + x


error("a variable a call", lambda: makes_variables(1.0))
leaked = []


@tf.function
def leaky(a):
    leaked.append(a + 1)
    return a + 2


show("leaky", leaky(tf.constant(1)))


@tf.function
def uses_leaked(b):
    return b + leaked[0]


error("a tensor that outlives its trace", lambda: uses_leaked(tf.constant(2)))
tf.config.run_functions_eagerly(True)
show("eagerly", side_effect(tf.constant(1)))
tf.config.run_functions_eagerly(False)
show("Python ran once more", len(external))
