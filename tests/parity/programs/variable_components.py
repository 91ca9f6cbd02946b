"""The components of distributed variables are variables: read, assigned, in functions."""

import tensorflow as tf
from _facts import error, show

strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
local = strategy.experimental_local_results
with strategy.scope():
    v = tf.Variable([1.0, 2.0], name="v")
    own = tf.Variable(
        1.0,
        name="own",
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )

show("are variables", [isinstance(c, tf.Variable) for c in (*v.values, *local(v), *own.values)])
show("names", [c.name for c in (*v.values, *own.values)])
show("devices", [c.device for c in v.values])
show("the same ones", [v.values[0] is v.values[0], local(v)[1] is v.values[1]])
show("values", [c.read_value() for c in v.values])
show("of a structure", local({"v": v, "own": [own]}))
v.values[1].assign([5.0, 6.0])
show("one assigned", list(v.values))
v.values[1].assign_add([1.0, 1.0])
v.values[0].assign_sub([1.0, 1.0])
show("one changed", list(v.values))
show("what replicas read", local(strategy.run(lambda: v * 1.0)))
v.values[1].assign(v.values[0])
show("equal again", [v.read_value(), *v.values])
show("arithmetic", [v.values[0] + v.values[1], tf.stack(v.values), tf.reduce_sum(v.values)])
own.values[1].assign(10.0)
show("of own ones", [own.read_value(), *own.values])
show("in a function", tf.function(lambda: v.values[1] * own.values[1])())


@tf.function
def assign_in_function():
    v.values[0].assign([7.0, 8.0])
    return v.values[0] * 2.0


show("assigned in a function", assign_in_function())
v.values[1].assign(v.values[0])
kept = v.values[1].read_value()
for _ in range(3):
    strategy.run(tf.function(lambda: v.assign_add([1.0, 1.0])))
show("what was read stays", [kept, v.values[1]])
error("wrong shape", lambda: v.values[0].assign([1.0]))
error("none outside of strategies", lambda: tf.Variable(1.0).values)
show(
    "a default strategy's", [c.name for c in tf.distribute.get_strategy().experimental_local_results(tf.Variable(1.0))]
)
