"""Derivatives of derivatives, Jacobians and Hessians, forward mode."""

import tensorflow as tf
from _facts import error, show

x = tf.Variable([1.0, 2.0])
with tf.GradientTape() as third, tf.GradientTape() as second, tf.GradientTape() as first:
    y = tf.reduce_sum(x**4)
one = None
with tf.GradientTape() as outer:
    with tf.GradientTape() as inner:
        y = tf.reduce_sum(tf.sin(x) * x)
    one = inner.gradient(y, x)
show("first and second", [one, outer.gradient(one, x)])
with tf.GradientTape() as t3:
    with tf.GradientTape() as t2:
        with tf.GradientTape() as t1:
            y = x[0] ** 4
        g1 = t1.gradient(y, x)
    g2 = t2.gradient(g1, x)
show("third", t3.gradient(g2, x))
with tf.GradientTape(persistent=True) as tape:
    y = tf.stack([x[0] * x[1], x[0] ** 2, tf.reduce_sum(x)])
    rows = tf.reshape(x, [2, 1]) * tf.constant([[1.0, 2.0], [3.0, 4.0]])
show("jacobian", tape.jacobian(y, x))
show("jacobian without pfor", tape.jacobian(y, x, experimental_use_pfor=False))
show("jacobian of unconnected", tape.jacobian(y, tf.Variable(1.0)))
show("zeros", tape.jacobian(y, [tf.Variable([1.0])], unconnected_gradients="zero"))
data = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
with tf.GradientTape() as tape:
    tape.watch(data)
    y = data**2 * tf.reduce_sum(data, 1, keepdims=True)
show("batch_jacobian", tape.batch_jacobian(y, data))
with tf.GradientTape() as outer:
    with tf.GradientTape() as inner:
        y = tf.reduce_prod(x) ** 2
    g = inner.gradient(y, x)
show("hessian", outer.jacobian(g, x))


@tf.function
def hessian(x):
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.reduce_prod(x) ** 2
        g = inner.gradient(y, x)
    return outer.jacobian(g, x)


show("hessian in a function", hessian(tf.constant([1.0, 2.0])))


@tf.custom_gradient
def cube(x):
    def grad(up):
        return up * 3.0 * x**2

    return x**3, grad


w = tf.Variable(2.0)
with tf.GradientTape() as outer:
    with tf.GradientTape() as inner:
        y = cube(w)
    g = inner.gradient(y, w)
show("custom gradient twice", [g, outer.gradient(g, w)])
scaled = tf.recompute_grad(lambda a: tf.sin(a) * tf.exp(a))
with tf.GradientTape() as tape:
    y = scaled(w * 1.0)
show("recompute_grad", [y, tape.gradient(y, w)])
rounded = tf.grad_pass_through(tf.round)
with tf.GradientTape() as tape:
    y = rounded(w * 1.3)
show("grad_pass_through", [y, tape.gradient(y, w)])


@tf.function
def by_gradients(a):
    y = a**3
    return tf.gradients(y, a)[0], tf.gradients(tf.gradients(y, a)[0], a)[0]


show("tf.gradients", by_gradients(tf.constant(2.0)))
error("tf.gradients eagerly", lambda: tf.gradients(w * 2.0, w))
with tf.autodiff.ForwardAccumulator(x, tf.constant([1.0, 0.5])) as accumulator:
    y = tf.reduce_sum(x**2) * x
show("forward mode", accumulator.jvp(y))
show("forward mode, not connected", accumulator.jvp(tf.constant(1.0)))
show("zeros", accumulator.jvp(tf.constant(1.0), unconnected_gradients=tf.UnconnectedGradients.ZERO))
