"""Steps on replicas whose sizes and loops depend on values: masks, arrays that grow, gradients of loops, slices."""

import tensorflow as tf
from _facts import show

strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(2)])
with strategy.scope():
    v = tf.Variable(2.0, aggregation=tf.VariableAggregation.SUM)


def masked(x):
    with tf.GradientTape() as tape:
        y = v * 1.0
        while y < 10.0:
            y = y * y
        loss = tf.reduce_sum(tf.boolean_mask(x, x > 1.0)) * y
    gradient = tape.gradient(loss, v)
    v.assign_sub(0.0005 * gradient)
    return loss, gradient


def collected(x):
    found = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    for i in tf.range(tf.shape(x)[0]):
        if x[i] > 1.0:
            found = found.write(found.size(), x[i])
    return found.stack()


def grown(x):
    rows = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    for i in tf.range(tf.shape(x)[0]):
        rows = rows.write(i, x[i] * v)
    return rows.stack()


def sliced(x, n):
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.reduce_sum(x[:n]))


def per_replica(rows):
    return strategy.experimental_distribute_values_from_function(lambda c: rows[c.replica_id_in_sync_group])


x = per_replica([tf.constant([1.0, 2.0, 3.0]), tf.constant([4.0, 0.5, 1.5])])
run = tf.function(lambda step, *args: strategy.run(step, args=args))
for _ in range(2):
    losses, gradients = run(masked, x)
    show("masked", [strategy.reduce("SUM", losses, axis=None), strategy.reduce("SUM", gradients, axis=None), v])
show("collected", [part.numpy() for part in strategy.experimental_local_results(run(collected, x))])
show("grown", [part.numpy() for part in strategy.experimental_local_results(run(grown, x))])
show("sliced", list(strategy.experimental_local_results(run(sliced, x, tf.constant(2)))))
show("eagerly", list(strategy.experimental_local_results(strategy.run(sliced, args=(x, tf.constant(1))))))


@tf.function
def whole_step(n):
    values = strategy.run(lambda: tf.ones([3]) * v)
    return strategy.reduce("SUM", values, axis=None)[:n]


show("around", whole_step(tf.constant(2)))
