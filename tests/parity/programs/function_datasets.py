"""Loops over datasets inside functions."""

import tensorflow as tf
from _facts import error, show

dataset = tf.data.Dataset.range(6)


@tf.function
def total(dataset):
    result = tf.constant(0, tf.int64)
    for x in dataset:
        if x == 4:
            continue
        result += x
    return result


show("sum", [total(dataset), total(dataset)])
show("traced", total.experimental_get_tracing_count())


@tf.function
def first_over(dataset, limit):
    found = tf.constant(-1, tf.int64)
    for x in dataset:
        if x > limit:
            found = x
            break
    return found


show("break", first_over(dataset, tf.constant(2, tf.int64)))


@tf.function
def two(iterator):
    return next(iterator), iterator.get_next()


iterator = iter(dataset)
show("next in a function", [two(iterator), two(iterator), two(iterator)])
error("at the end", lambda: two(iterator))

strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
with strategy.scope():
    weight = tf.Variable(1.0, aggregation=tf.VariableAggregation.MEAN)


def replica_step(x):
    weight.assign_add(tf.reduce_mean(x))
    return tf.reduce_sum(x) * weight


batches = tf.data.Dataset.from_tensor_slices(tf.range(12.0)).batch(4)


@tf.function
def epoch(batches):
    loss, count = 0.0, 0
    for x in batches:
        loss += strategy.reduce("SUM", strategy.run(replica_step, args=(x,)), axis=None)
        count += 1
    return loss / tf.cast(count, tf.float32)


distributed = strategy.experimental_distribute_dataset(batches)
show("epoch", [epoch(distributed), epoch(distributed)])
show("weight", weight)


@tf.function
def steps(iterator, n):
    loss = 0.0
    for _ in tf.range(n):
        loss += strategy.reduce("SUM", strategy.run(replica_step, args=(next(iterator),)), axis=None)
    return loss


iterator = iter(strategy.experimental_distribute_dataset(batches.repeat()))
show("steps", [steps(iterator, tf.constant(2)), steps(iterator, tf.constant(3))])


@tf.function
def repeated(x, n):
    loss = 0.0
    for _ in tf.range(n):
        loss += strategy.reduce("SUM", strategy.run(replica_step, args=(x,)), axis=None)
    return loss


show("same batch", repeated(next(iterator), tf.constant(3)))
show("weight after", weight)
show("map with control flow", list(dataset.map(lambda x: x if x % 2 == 0 else -x).as_numpy_iterator()))
