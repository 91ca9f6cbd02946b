"""Gradients of what is computed with variables that are assigned and read again: an assignment ends them, a read begins anew."""

import tensorflow as tf
from _facts import show

v, u, x = tf.Variable(0.3), tf.Variable(0.2, trainable=False), tf.Variable(0.5)


def straight(n):
    y = v * x
    v.assign(v * 2.0 + x)
    return y + v * v


def in_branch(n):
    y = x * 1.0
    if n > 0:
        u.assign(u + x)
        v.assign(v + x)
        y = y * u + v * v
    return y * v


def in_while(n):
    y = x * 1.0
    while n > 0:
        u.assign(u + x)
        y = y * u + v
        v.assign(v * 0.9 + x)
        n -= 1
    return y


def in_for(n):
    y = x * 1.0
    for i in tf.range(3):
        if i < n:
            v.assign(v + x)
        y = y * v
    return y


def gradients(fn, n):
    with tf.GradientTape() as tape:
        y = fn(n)
    return [y, *tape.gradient(y, [x, v])]


for fn in (straight, in_branch, in_while, in_for):
    for label, compute in (
        ("", gradients),
        (", in a function around", tf.function(gradients)),
        (", in a function inside", lambda fn, n: gradients(tf.function(fn), n)),
        (", tf.gradients", tf.function(lambda fn, n: (lambda y: [y, *tf.gradients(y, [x, v])])(fn(n)))),
    ):
        v.assign(0.3)
        u.assign(0.2)
        show(fn.__name__ + label, compute(fn, tf.constant(2)))
        show("variables", [v.numpy(), u.numpy()])


@tf.function
def double(x, n):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y, i = x, tf.constant(0, tf.int64)
        while i < n:
            y = tf.sin(y) * x
            i += 1
    return y, tape.gradient(y, x)


for n in (0, 5, 70):
    show("double", double(tf.constant(0.9, tf.float64), tf.constant(n, tf.int64)))
