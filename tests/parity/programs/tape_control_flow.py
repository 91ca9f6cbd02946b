"""Gradients through compiled functions, branches, loops, scans and replicas."""

import tensorflow as tf
from _facts import show

v = tf.Variable(2.0)


def gradient(fn):
    with tf.GradientTape() as tape:
        y = fn()
    return [y, tape.gradient(y, v)]


def both(label, fn):
    show(label, gradient(fn))
    show(f"{label}, in a function around", tf.function(lambda: gradient(fn))())


both("function", tf.function(lambda: v**2 * 3.0))
both("nested functions", tf.function(lambda: tf.function(lambda a: a * v)(v * 2.0)))
both("cond, true", lambda: tf.cond(v > 1.0, lambda: v * 2.0, lambda: v**3))
both("cond, false", lambda: tf.cond(v > 9.0, lambda: v * 2.0, lambda: v**3))
both("case", lambda: tf.switch_case(tf.constant(1), [lambda: v, lambda: v * v, lambda: v * 5.0]))
both("scan", lambda: tf.scan(lambda a, b: a * v + b, tf.constant([1.0, 2.0, 3.0]))[-1])
both("map_fn", lambda: tf.reduce_sum(tf.map_fn(lambda a: a * v**2, tf.constant([1.0, 2.0]))))
both("foldl", lambda: tf.foldl(lambda a, b: a * v + b, tf.constant([1.0, 2.0, 3.0])))
both("vectorized_map", lambda: tf.reduce_sum(tf.vectorized_map(lambda a: a * v**2, tf.constant([1.0, 2.0]))))
show("while_loop", gradient(lambda: tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * v), (0, v * 1.0))[1]))


@tf.function
def bounded():
    with tf.GradientTape() as tape:
        _, y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * v), (0, v * 1.0), maximum_iterations=5)
    return y, tape.gradient(y, v)


show("while_loop with a bound, in a function", bounded())


@tf.function
def converted(n):
    with tf.GradientTape() as tape:
        y = v * 1.0
        for _ in tf.range(3):
            if y > n:
                y = y * v
            else:
                y = y + v
    return y, tape.gradient(y, v)


show("AutoGraph", converted(tf.constant(3.0)))
strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
with strategy.scope():
    w = tf.Variable([1.0, 2.0])
data = next(
    iter(strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices([1.0, 2.0, 3.0]).batch(3)))
)


@tf.function
def replicas(batch):
    def step(rows):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(rows[:, None] * w**2)
        g = tape.gradient(loss, w)
        return tf.distribute.get_replica_context().all_reduce("SUM", g)

    return strategy.reduce("MEAN", strategy.run(step, args=(batch,)), axis=None)


show("in replicas, uneven", replicas(data))
