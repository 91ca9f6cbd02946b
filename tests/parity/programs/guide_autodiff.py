"""The guides to automatic differentiation: tapes, watching, None gradients, persistence, Jacobians and Hessians."""

import numpy as np
import tensorflow as tf
from _facts import error, show

x = tf.Variable(3.0)
with tf.GradientTape() as tape:
    y = x**2
show("dy/dx", tape.gradient(y, x).numpy())

w = tf.Variable(np.arange(6, dtype="float32").reshape(3, 2) / 10, name="w")
b = tf.Variable(tf.zeros(2, dtype=tf.float32), name="b")
data = [[1.0, 2.0, 3.0]]
with tf.GradientTape(persistent=True) as tape:
    out = data @ w + b
    loss = tf.reduce_mean(out**2)
[dl_dw, dl_db] = tape.gradient(loss, [w, b])
show("shape of the gradient", [dl_dw.shape == w.shape, dl_dw.numpy()])
show("by name", tape.gradient(loss, {"w": w, "b": b})["b"].numpy())
del tape

trained = tf.Variable(3.0, name="x0")
fixed = tf.Variable(3.0, name="x1", trainable=False)
tensor = tf.Variable(2.0, name="x2") + 1.0
constant = tf.constant(3.0, name="x3")
with tf.GradientTape() as tape:
    y = (trained**2) + (fixed**2) + (tensor**2) + (constant**2)
show("only trainable variables", [g is None for g in tape.gradient(y, [trained, fixed, tensor, constant])])
show("watched", [v.name for v in tape.watched_variables()])

x = tf.constant([1.0, 3.0])
with tf.GradientTape() as tape:
    tape.watch(x)
    y = x * x
    z = y * y
show("intermediate", tape.gradient(z, y).numpy())
error("used up", lambda: tape.gradient(z, x))

x = tf.Variable(2.0)
with tf.GradientTape() as tape:
    y0 = x**2
    y1 = 1 / x
show("sum of targets", tape.gradient({"y0": y0, "y1": y1}, x).numpy())

x = tf.constant(1.0)
v0, v1 = tf.Variable(2.0), tf.Variable(2.0)
with tf.GradientTape(persistent=True) as tape:
    tape.watch(x)
    result = v0 if x > 0.0 else v1**2
show("branch", [g if g is None else g.numpy() for g in tape.gradient(result, [v0, v1])])

x, y = tf.Variable(2.0), tf.Variable(3.0)
with tf.GradientTape() as tape:
    z = y * y
show("unconnected", tape.gradient(z, x))
with tf.GradientTape() as tape:
    z = y * y
show("zeros", tape.gradient(z, x, unconnected_gradients=tf.UnconnectedGradients.ZERO).numpy())

x = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
with tf.GradientTape() as tape:
    y = tf.reduce_mean(x**2 + np.mean(x, axis=0), axis=0)
show("NumPy cuts the gradient", tape.gradient(y, x).numpy())

x, y = tf.Variable(2.0), tf.Variable(3.0)
with tf.GradientTape() as tape:
    x_squared = x * x
    with tape.stop_recording():
        y_squared = y * y
    z = x_squared + y_squared
show("stopped", [g if g is None else g.numpy() for g in tape.gradient(z, [x, y])])
with tf.GradientTape() as tape:
    x_squared = x * x
    tape.reset()
    z = x * 3.0 + x_squared
show("reset", tape.gradient(z, x).numpy())
with tf.GradientTape() as tape:
    z = x**2 + tf.stop_gradient(y**2)
show("stop_gradient", [g if g is None else g.numpy() for g in tape.gradient(z, [x, y])])


@tf.custom_gradient
def clipped(y):
    """The identity, whose gradient has norm 0.5 at most."""

    def backward(dy):
        return tf.clip_by_norm(dy, 0.5)

    return y, backward


v = tf.Variable(2.0)
with tf.GradientTape() as tape:
    output = clipped(v * v)
show("custom gradient", tape.gradient(output, v).numpy())

x0, x1 = tf.constant(0.0), tf.constant(0.0)
with tf.GradientTape() as tape0, tf.GradientTape() as tape1:
    tape0.watch(x0)
    tape1.watch(x1)
    ys = tf.math.sin(x0) + tf.nn.sigmoid(x1)
show("two tapes", [tape0.gradient(ys, x0).numpy(), tape1.gradient(ys, x1).numpy()])

x = tf.Variable(1.0)
with tf.GradientTape() as t2:
    with tf.GradientTape() as t1:
        y = x * x * x
    dy_dx = t1.gradient(y, x)
show("second order", [dy_dx.numpy(), t2.gradient(dy_dx, x).numpy()])

x = tf.constant(np.linspace(-1, 1, 8, dtype="float32").reshape(4, 2))
weight = tf.Variable(np.linspace(0, 1, 6, dtype="float32").reshape(2, 3))
with tf.GradientTape(persistent=True) as tape:
    tape.watch(x)
    y = tf.nn.relu(x @ weight)
show("jacobian", [tuple(tape.jacobian(y, weight).shape), tf.reduce_sum(tape.jacobian(y, weight), axis=[0, 1]).numpy()])
show("batch jacobian", [tuple(tape.batch_jacobian(y, x).shape), tape.batch_jacobian(y, x)[3].numpy()])

with tf.GradientTape() as t2:
    with tf.GradientTape() as t1:
        loss = tf.reduce_mean(tf.nn.elu(x @ weight) ** 2)
    g = t1.gradient(loss, weight)
hessian = t2.jacobian(g, weight)
show("hessian", [tuple(hessian.shape), bool(np.allclose(h := hessian.numpy().reshape(6, 6), h.T, atol=1e-6))])
