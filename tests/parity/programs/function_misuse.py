"""Tensors where they have no value, assertions, rebound variables, lists that grow."""

import tensorflow as tf
from _facts import error, show

kept = []


@tf.function
def leaking(x):
    kept.append(x * 2)
    return x


leaking(tf.constant(1.0))
error("a leaked tensor", lambda: kept[0] + 1)
error("in another function", lambda: tf.function(lambda: kept[0] + 1)())


@tf.function(autograph=False)
def as_bool(x):
    return 1 if x > 0 else 0


error("a tensor as bool", lambda: as_bool(tf.constant(1)))


@tf.function
def positive(x):
    tf.debugging.assert_positive(x)
    return x + 1


show("holds", positive(tf.constant(1.0)))
error("fails", lambda: positive(tf.constant(-1.0)))
show("holds again", positive(tf.constant(2.0)))
state = tf.Variable(0)


@tf.function
def checked(x):
    state.assign_add(1)
    tf.debugging.assert_less(x, 10, message="too large")
    return state.read_value()


show("counted", checked(tf.constant(1)))
error("fails too", lambda: checked(tf.constant(11)))


@tf.function
def squares(x):
    for _ in tf.range(3):
        x = x * x
    return x


show("a variable's name given to a tensor", squares(tf.Variable(1.2)))


@tf.function
def while_rebound(x):
    while x < 100.0:
        x = x * 3
    return x


show("in a while loop", while_rebound(tf.Variable(2.0)))


@tf.function
def growing(n):
    found = []
    for i in tf.range(n):
        found.append(i)
    return found


error("a list that grows", lambda: growing(tf.constant(3)))
show(
    "types",
    [
        isinstance(squares, tf.types.experimental.GenericFunction),
        isinstance(squares.get_concrete_function(tf.constant(1.0)), tf.types.experimental.ConcreteFunction),
    ],
)
