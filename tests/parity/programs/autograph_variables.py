"""Conditions on tensors between variables: what follows has the value of one of them."""

import tensorflow as tf

a, b = tf.Variable(1.0), tf.Variable(20.0)


@tf.function
def one_of(condition):
    if condition:
        chosen = a
    else:
        chosen = b
    return chosen + 1


@tf.function
def one_or_tensor(condition, x):
    if condition:
        mean, rest = a, [x, a]
    else:
        mean, rest = x * 2, [b, x]
    return mean, rest[0] - rest[1]


@tf.function
def expression(condition):
    return (a if condition else b) * 3


@tf.function
def returned(condition):
    if condition:
        return a
    return b


@tf.function
def squared(condition):
    if condition:
        chosen = a
    else:
        chosen = b
    return chosen * chosen


for yes in (tf.constant(True), tf.constant(False)):
    print(one_of(yes).numpy(), [t.numpy() for t in one_or_tensor(yes, tf.constant(3.0))], expression(yes).numpy())
    print(returned(yes).numpy())
    with tf.GradientTape() as tape:
        y = squared(yes)
    print([None if g is None else g.numpy() for g in tape.gradient(y, [a, b])])
