"""Variables that an eager `strategy.run` makes, and returns: one for all replicas, a new one in each call."""

import tensorflow as tf
from _facts import error, show

strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
local = strategy.experimental_local_results
numbers = strategy.experimental_distribute_values_from_function(lambda c: tf.constant(c.replica_id_in_sync_group + 1.0))
made = []


def step(x):
    v = tf.Variable(1.0, name="v")
    made.append(v)
    v.assign_add(x)
    return {"v": v, "square": v * v}


def of_argument(x):
    return tf.Variable(x * 10.0)


def looks(x):
    v = tf.Variable(x * 2.0)
    return v, v * x if float(x) > 1 else x


def own():
    v = tf.Variable(
        0.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM, name="own"
    )
    v.assign_add(tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32) + 1.0)
    return v


first, second = strategy.run(step, args=(3.0,)), strategy.run(step, args=(3.0,))
show("values", [first["v"], second["v"]])
show("results", [*local(first["square"]), *local(second["square"])])
first["v"].assign(9.0)
show("each call makes one", [first["v"], second["v"]])
show("kept ones", [made[0] + 0.0, made[-1] + 0.0])
show("mirrored", [first["v"].distribute_strategy is strategy, len(first["v"].values), first["v"].values[1].name])
show("each replica's own change", local(strategy.run(step, args=(numbers,))["square"]))
with strategy.scope():
    show("in a scope", strategy.run(step, args=(1.0,))["v"])
show("for each replica", strategy.extended.call_for_each_replica(step, args=(1.0,))["v"])
of_numbers = strategy.run(of_argument, args=(numbers,))
show("of what replicas are given", [*of_numbers.values])
looked, result = strategy.run(looks, args=(numbers,))
show("in a step that looks at values", [*looked.values, *local(result)])
on_read = strategy.run(own)
show("each replica's own", [on_read.read_value(), *on_read.values, strategy.reduce("SUM", on_read, axis=None)])
show("several", strategy.run(lambda: (tf.Variable(1.0), [tf.Variable(2.0)])))
show("of random numbers", len({float(c) for c in strategy.run(lambda: tf.Variable(tf.random.uniform([]))).values}))
rows = next(iter(strategy.experimental_distribute_dataset(tf.data.Dataset.range(3).batch(3))))
made_of_rows, total = strategy.run(lambda x: (tf.Variable(4.0), tf.reduce_sum(x)), args=(rows,))
show("with rows that do not divide", [made_of_rows, len(made_of_rows.values), *local(total)])


class Once:
    v = None

    def __call__(self, x):
        if self.v is None:
            self.v = tf.Variable(3.0, aggregation=tf.VariableAggregation.MEAN)
        self.v.assign_add(x)
        return self.v * 2.0


once = Once()
show("made once", [*local(strategy.run(once, args=(numbers,))), *local(strategy.run(once, args=(numbers,))), once.v])
with strategy.scope():
    w = tf.Variable([6.0])
show("a variable is returned itself", [strategy.run(lambda: w) is w, strategy.run(lambda: [w])[0] is w])
show("gathered", strategy.gather(w, axis=0))
show("value of one that changes", local(strategy.run(lambda: w.assign_add([1.0]))))
show("other strategies", [tf.distribute.get_strategy().run(step, args=(1.0,))["v"]])
show("one device", tf.distribute.OneDeviceStrategy("/cpu:1").run(step, args=(1.0,))["v"])
error("in a function", tf.function(lambda: strategy.run(of_argument, args=(1.0,))))
