"""Steps that look at values: replica numbers, `numpy()`, Python control flow and results that are no tensors."""

import tensorflow as tf
from _facts import show

strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
values = strategy.experimental_distribute_values_from_function(lambda c: tf.constant(c.replica_id_in_sync_group + 1.0))
local = lambda x: list(strategy.experimental_local_results(x))
with strategy.scope():
    counter = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)
    own = tf.Variable(0.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.MEAN)

seen = []


def look(x):
    seen.append(float(x))
    counter.assign_add(x)
    own.assign_add(x * 10)
    total = tf.distribute.get_replica_context().all_reduce("SUM", x)
    return total + x if x.numpy() > 1 else total


show("float and numpy", local(strategy.run(look, args=(values,))))
show("again", local(strategy.run(look, args=(values,))))
show("seen", sorted(seen[-4:]))
show("counter", counter)
show("own", [own.read_value(), local(own)])


def by_number():
    context = tf.distribute.get_replica_context()
    if context.replica_id_in_sync_group == 0:
        return tf.constant(100.0)
    return tf.constant(200.0)


show("if on the number", local(strategy.run(by_number)))


def python_number(x):
    return 7


show("Python number", strategy.run(python_number, args=(values,)))


def gradients(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
        if float(y) > 2:
            y = y * 10
    return tape.gradient(y, x)


show("gradient of what was run", local(strategy.run(gradients, args=(values,))))
