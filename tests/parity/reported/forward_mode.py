import tensorflow as tf
from _show import show

FA = tf.autodiff.ForwardAccumulator


def a():
    v = tf.Variable(1.0)
    with FA(v, 11.0):
        v.assign_sub(0.5)
    return v.numpy()


show("F1 assign to watched variable", a)


def a1():
    v = tf.Variable(1.0)
    w = tf.Variable(2.0)
    with FA(v, 11.0) as acc:
        w.assign(v * 3.0)
    return w.numpy()


show("F1b assign from watched variable", a1)


def b():
    v = tf.Variable(1.0)
    with FA(v, 11.0) as acc:
        r = tf.function(lambda: (v.read_value(), 2.0 * v.read_value()))()
    return acc.jvp(r)


show("F2 function that reads the watched variable", b)


class Mod(tf.Module):
    _v = None

    @tf.function
    def f(self):
        if self._v is None:
            self._v = tf.Variable([1.0, 2.0, 3.0])
        with FA(self._v, tf.constant([0.1, -0.2, 0.3])) as acc:
            x = self._v * 2.0
        return acc.jvp((self._v, x))


show("F3 accumulator in function with variable made there", lambda: Mod().f())
v5 = tf.Variable([1.0, 2.0, 3.0])


@tf.function
def f5():
    with FA(v5, tf.constant([0.1, -0.2, 0.3])) as acc:
        x = v5 * 2.0
    return acc.jvp(x)


show("F3b accumulator in function with variable", f5)


def c():
    p = tf.constant(1.1)
    with FA(p, tf.constant(1.0)) as outer:
        with FA(p, tf.constant(1.0)) as inner:
            y = p**3.5
    j = inner.jvp(y)
    return j, outer.jvp(j)


show("F4 nested, jvp asked outside", c)


def d():
    p = tf.constant(1.1)
    with FA(p, tf.constant(1.0)) as outer:
        with FA(p, tf.constant(1.0)) as inner:
            y = p**3.5
        j = inner.jvp(y)
    return j, outer.jvp(j)


show("F4b nested, jvp asked inside outer", d)
s = tf.distribute.MirroredStrategy(["cpu:0"])
with s.scope():
    mv = tf.Variable([1.0, 2.0, 3.0])


def rep(t):
    with FA(mv, t) as acc:
        x = mv * 2.0
    return acc.jvp(x)


show("F5 replica", lambda: s.run(rep, args=(tf.constant([0.1, -0.2, 0.3]),)))


def e():
    v = tf.constant(1.0)
    with FA(v, 11.0) as acc:
        r = tf.function(lambda x: tf.constant(1.0))(v)
    return acc.jvp(r)


show("F6 unused argument of function", e)


@tf.custom_gradient
def cg(x):
    def grad(dy):
        raise ValueError("test_error_string")

    return x, grad


def g():
    c = tf.constant(1.0)
    with FA(c, tf.constant(2.0)) as acc:
        y = cg(c)
    return acc.jvp(y)


show("F7 error in custom gradient", g)
