import numpy as np
import tensorflow as tf
from _show import show

keras = tf.keras


class M(keras.Model):
    def __init__(self):
        super().__init__()
        self.d = keras.layers.Dense(2)

    @tf.function
    def call(self, inputs, training=True):
        return self.d(inputs)


show("K2 @tf.function call", lambda: M()(tf.ones([1, 2])).shape)


class M2(keras.Model):
    def __init__(self):
        super().__init__()
        self.d = keras.layers.Dense(2)

    @tf.function
    def call(self, inputs):
        return self.d(inputs)


show("K2 @tf.function call no training", lambda: M2()(tf.ones([1, 2])).shape)


class L(keras.layers.Layer):
    @tf.function
    def call(self, inputs):
        return inputs * 2


show("K2 layer @tf.function call", lambda: L()(tf.ones([1, 2])).shape)


def fitm():
    m = M2()
    m.compile("sgd", "mse")
    return m.fit(np.ones((4, 2)), np.ones((4, 2)), verbose=0).history


show("K2 fit", fitm)


def merge():
    i = keras.Input((1,))
    return keras.layers.Multiply()([np.array([[0.0]], np.float32), keras.layers.Dense(1)(i)]).shape


show("K1 multiply array, KerasTensor", merge)
show("K1 eager multiply", lambda: keras.layers.Multiply()([np.array([[0.0]], np.float32), tf.ones((1, 1))]))
x = tf.constant([[3.0]])


def bj():
    with tf.GradientTape() as t:
        t.watch(x)
        z = tf.tile(x * x * x * x, [1, 16])
    return t.batch_jacobian(z, x, parallel_iterations=8).shape


show("batch_jacobian parallel_iterations non persistent", bj)


def bj2():
    with tf.GradientTape() as t:
        t.watch(x)
        y = x * x
    t.batch_jacobian(y, x)
    return t.batch_jacobian(y, x)


show("batch_jacobian twice", bj2)


def st():
    s = tf.constant("a")
    with tf.GradientTape() as t:
        t.watch(s)
        y = tf.identity(s)
    return t.gradient(y, s)


show("watch string", st)


def rg():
    a, b = tf.Variable([1.0, 2.0]), tf.Variable(1.0)

    @tf.recompute_grad
    def f(x):
        return {k: v + 1 for k, v in x.items()}

    with tf.GradientTape():
        y = f({a.ref(): a, b.ref(): b})
    return len(y)


show("recompute_grad of dict keyed by refs", rg)


@tf.function
def fr(d):
    return {k: v + 1 for k, v in d.items()}


def refs():
    a, b = tf.Variable([1.0, 2.0]), tf.Variable(1.0)
    return len(fr({a.ref(): a, b.ref(): b}))


show("tf.function of dict keyed by refs", refs)


@tf.custom_gradient
def cg(x):
    def grad(_):
        raise AssertionError("ran backward")

    return x, grad


def sg():
    x = tf.constant(1.0)
    with tf.GradientTape() as t:
        t.watch(x)
        y = tf.function(cg)(tf.stop_gradient(x))
    return t.gradient(y, x)


show("stop_gradient then custom_gradient in function", sg)


def sg2():
    x = tf.constant(1.0)
    with tf.GradientTape() as t:
        t.watch(x)
        y = cg(tf.stop_gradient(x))
    return t.gradient(y, x)


show("stop_gradient then custom_gradient", sg2)


@tf.function
def ret():
    return tf.data.Dataset.range(3)


show("function returns dataset", lambda: [int(v) for v in ret()])
show("rebatch spec", lambda: tf.data.Dataset.range(8).batch(4, drop_remainder=True).rebatch(2).element_spec)
show("rebatch list [0,1]", lambda: [v.numpy().tolist() for v in tf.data.Dataset.range(4).batch(2).rebatch([0, 1])])
show(
    "reduce invalid",
    lambda: tf.data.Dataset.range(3).reduce(
        0, lambda s, x: tf.debugging.check_numerics(tf.cast(x, tf.float32) / 0.0, "m")
    ),
)
show("gradient order watched", lambda: 0)
