"""Python control flow in functions that are given to `tf.map_fn`, and in lambdas given to other operations."""

import functools

import tensorflow as tf
from _facts import error, show


def positive(x):
    if x > 0:
        return x
    return x * 0


def collatz(x):
    steps = 0
    while x > 1:
        if x % 2 == 0:
            x = x // 2
        else:
            x = 3 * x + 1
        steps += 1
    return steps


def add_positive(total, x):
    if x > 0:
        total = total + x
    return total


@tf.function
def mapped(x):
    return tf.map_fn(positive, x)


@tf.function
def mapped_by_keyword(x):
    return tf.map_fn(fn=positive, elems=x)


@tf.function
def mapped_partial(x):
    return tf.map_fn(functools.partial(add_positive, 1.0), x)


@tf.function
def mapped_twice(x):
    return tf.map_fn(lambda row: tf.map_fn(positive, row), tf.stack([x, -x]))


@tf.function
def mapped_pairs(x):
    return tf.map_fn(lambda pair: add_positive(pair[0], pair[1]), (x, x * 2.0), fn_output_signature=tf.float32)


@tf.function
def mapped_loop(x):
    return tf.map_fn(collatz, tf.cast(x * 5.0, tf.int32))


@tf.function
def accumulated(x):
    return tf.scan(lambda total, entry: add_positive(total, entry), x), tf.foldl(
        lambda total, entry: add_positive(total, entry), x, 0.0
    )


@tf.function
def looped(x):
    return tf.while_loop(lambda i, _: i < 3, lambda i, total: (i + 1, add_positive(total, x[i])), [0, 0.0])


@tf.function
def vectorized(x):
    return tf.vectorized_map(lambda pair: add_positive(pair[0], pair[1]), (x, x))


@tf.function(autograph=False)
def unconverted(x):
    return tf.map_fn(positive, x)


x = tf.constant([1.0, -2.0, 3.0])
for function in (mapped, mapped_by_keyword, mapped_partial, mapped_twice, mapped_pairs, mapped_loop):
    show(function.__name__, function(x))
for function in (accumulated, looped, vectorized):
    show(function.__name__, function(x))
error("unconverted", lambda: unconverted(x))
