"""Variables and side effects in functions."""

import tensorflow as tf
from _facts import error, show

counter = tf.Variable(0)
log = []


@tf.function
def step(x):
    log.append("traced")
    counter.assign_add(1)
    if x > 0:
        counter.assign_add(10)
    return counter.read_value()


show("assigned", [step(tf.constant(1)), step(tf.constant(-1)), step(tf.constant(1))])
show("side effects", len(log))


class Layer(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = None

    @tf.function
    def __call__(self, x):
        if self.w is None:
            self.w = tf.Variable(2.0, name="w")
        return x * self.w


layer = Layer()
show("created on first call", [layer(tf.constant(3.0)), layer(tf.constant(4.0))])
show("its variable", layer.w)


@tf.function
def always_new(x):
    v = tf.Variable(1.0)
    return v + x


error("created on every call", lambda: always_new(tf.constant(1.0)))


@tf.function
def add_to(v, x):
    return v.assign_add(x)


a, b = tf.Variable(1.0), tf.Variable(10.0)
show("variables as arguments", [add_to(a, 1.0), add_to(b, 1.0), add_to(a, 1.0)])
show("values", [a, b])


@tf.function
def order(x):
    a.assign(x)
    y = a + 1
    a.assign(y * 2)
    return y, a.read_value()


show("in order", order(tf.constant(5.0)))
show("after", a)


@tf.function
def loop(n):
    for i in tf.range(n):
        if i % 2 == 0:
            counter.assign_add(i)
        else:
            counter.assign_sub(1)
    return counter.read_value()


counter.assign(0)
show("assigned in a loop", loop(tf.constant(6)))


@tf.function
def while_variable():
    while counter < 20:
        counter.assign_add(7)
    return counter.read_value()


show("variable as condition", while_variable())
b.assign(a)
a.assign_add(100.0)
show("assign copies", [a, b])

external = 1


@tf.function
def closure(x):
    return x + external


first = closure(tf.constant(1))
external = 5
show("globals are constants", [first, closure(tf.constant(1))])


@tf.function
def with_init_scope(x):
    with tf.init_scope():
        value = tf.constant(3.0) * 2
    return x + value


show("init_scope", with_init_scope(tf.constant(1.0)))


@tf.function
def outer_grad(x):
    with tf.GradientTape() as tape:
        y = x * a
        for _ in tf.range(3):
            y = y * a
    return tape.gradient(y, a)


a.assign(2.0)
show("gradient through a loop", outer_grad(tf.constant(1.0)))
