import numpy as np
import tensorflow as tf
from _show import show

D = tf.data.Dataset


def side():
    c = tf.Variable(0)

    def inc(x):
        c.assign_add(1)
        return x

    @tf.function
    def fn():
        return D.range(1).map(inc).get_single_element()

    fn()
    return c.numpy()


show("G1 variable changed in map of a dataset in a tf.function", side)


def side2():
    c = tf.Variable(0)

    def inc(x):
        c.assign_add(1)
        return x

    list(D.range(3).map(inc))
    return c.numpy()


show("G2 variable changed in map, eagerly", side2)
FA = tf.autodiff.ForwardAccumulator
v = tf.Variable(1.0)


def ok():
    with FA(v, 11.0) as acc:
        y = v * 2.0
    return acc.jvp(y)


show("L0 before", ok)


def reenter():
    c = tf.constant(1.0)
    acc = FA(c, c)
    with acc:
        try:
            with acc:
                pass
        except ValueError as e:
            return "ValueError"


show("L1 reenter", reenter)
show("L1 after", ok)


def multi():
    x = tf.constant(-2.0)
    try:
        with FA([x, x], [tf.constant(1.0), tf.constant(1.0)]) as acc:
            return acc.jvp(x * 2.0)
    except ValueError:
        return "ValueError"


show("L2 multiple watches", multi)
show("L2 after", ok)


def exc():
    try:
        with FA(tf.constant(1.0), tf.constant(1.0)):
            raise KeyError
    except KeyError:
        return "raised"


show("L3 exception", exc)
show("L3 after", ok)


@tf.custom_gradient
def f(x):
    def grad(dy):
        raise ValueError("test_error_string")

    return 1.0, grad


def excg():
    c = tf.constant(1.0)
    with FA(c, tf.constant(2.0)):
        try:
            f(c)
        except ValueError:
            return "ValueError"
    return "no error"


show("L4 error in custom gradient, constant result", excg)
show("L4 after", ok)
s = tf.distribute.MirroredStrategy()
with s.scope():
    mv = tf.Variable([1.0, 2.0, 3.0])


def rep(t):
    with FA(mv, t) as acc:
        a = acc.jvp(mv)
        x = mv * 2.0
        b = acc.jvp(x)
        x2 = mv + 0.1
        np.testing.assert_allclose([0.2, -0.4, 0.6], b, 1e-5)
        return acc.jvp(x2)


show("L5 mirrored, jvp compared inside replica", lambda: s.run(rep, args=(tf.constant([0.1, -0.2, 0.3]),)))
show("L5 after", ok)


def r12():
    sizes = iter([0, 0, 1, 0, 2, 0])

    def gen():
        for i in range(next(sizes)):
            yield i

    return [int(x) for x in D.from_generator(gen, output_signature=tf.TensorSpec((), tf.int64)).repeat(6).take(3)]


show("R1 repeat(6) with epochs without elements", r12)


def r13():
    sizes = iter([0, 0, 1, 0, 2, 0])

    def gen():
        for i in range(next(sizes)):
            yield i

    # Sorted: the order is random.
    return sorted(
        int(x)
        for x in D.from_generator(gen, output_signature=tf.TensorSpec((), tf.int64)).shuffle(10).repeat(6).take(3)
    )


show("R2 shuffle(10).repeat(6) with epochs without elements", r13)
