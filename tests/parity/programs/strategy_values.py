"""Values of replicas: structures, local results, gather, values from functions, several strategies."""

import numpy as np
import tensorflow as tf
from _facts import error, show

four = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(4)])
two = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
one = tf.distribute.OneDeviceStrategy("/cpu:3")
show("replicas", [s.num_replicas_in_sync for s in (four, two, one, tf.distribute.get_strategy())])

values = four.experimental_distribute_values_from_function(
    lambda context: tf.constant(context.replica_id_in_sync_group * 1.5)
)
show("values from a function", list(four.experimental_local_results(values)))
show(
    "number of replicas in it",
    list(
        two.experimental_local_results(
            two.experimental_distribute_values_from_function(lambda c: tf.constant(c.num_replicas_in_sync))
        )
    ),
)


def step(x, *, scale, names=None):
    return {"x": x * scale, "nested": (x + 1, [x - 1]), "none": None}


result = four.run(step, args=(values,), kwargs={"scale": 2.0})
show("structure", sorted(result))
show("x", list(four.experimental_local_results(result["x"])))
show("nested", list(four.experimental_local_results(result["nested"][1][0])))
show("none", result["none"])
show("SUM of a structure", four.reduce("SUM", result["nested"], axis=None))
show("plain values pass through", four.experimental_local_results(3.5))
show("one replica", one.run(lambda x: x * 2, args=(tf.constant(3.0),)))
show("one replica, local results", one.experimental_local_results(tf.constant(3.0)))
show("returns nothing", four.run(lambda: None))

rows = four.run(lambda v: tf.stack([v, v + 1]), args=(values,))
show("gather", four.gather(rows, axis=0))
matrix = four.run(lambda v: tf.reshape(tf.stack([v, v + 1]), [1, 2]), args=(values,))
show("gather along 1", four.gather(matrix, axis=1))
show("reduce axis 0", four.reduce("SUM", rows, axis=0))
show("mean axis 0", four.reduce("MEAN", rows, axis=0))
show("mean axis 1", four.reduce("MEAN", matrix, axis=1))
error("gather scalars", lambda: four.gather(values, axis=0))
error("reduce scalars along 0", lambda: four.reduce("SUM", values, axis=0))


@tf.function
def both(x):
    a = four.reduce("SUM", four.run(lambda v: v * v, args=(x,)), axis=None)
    return a, two.reduce("SUM", two.run(lambda: tf.constant(1.0)), axis=None)


show("two strategies in one function", both(values))

with four.scope():
    v4 = tf.Variable(1.0)
with two.scope():
    v2 = tf.Variable(2.0)
show("variables of both", [v4 + 0, v2 + 0])
show("created in scope", [four.extended.variable_created_in_scope(v4), four.extended.variable_created_in_scope(v2)])
show("in scope", [tf.distribute.has_strategy(), tf.distribute.in_cross_replica_context()])
with four.scope():
    show(
        "in scope",
        [tf.distribute.has_strategy(), tf.distribute.in_cross_replica_context(), tf.distribute.get_strategy() is four],
    )
    error("other scope inside", lambda: two.scope().__enter__())
    with four.scope():
        show("same scope again", tf.distribute.get_strategy() is four)
show("replica context outside", tf.distribute.get_replica_context().num_replicas_in_sync)
with four.scope():
    show("replica context in a scope", tf.distribute.get_replica_context())


def _all_reduce_in_scope():
    with four.scope():
        return tf.distribute.get_replica_context().all_reduce("SUM", 1.0)


error("replica-only", _all_reduce_in_scope)
error("reduce inside run", lambda: four.run(lambda: four.reduce("SUM", 1.0, axis=None)))
error("scope inside run", lambda: four.run(lambda: four.scope().__enter__()))
error("run inside run", lambda: four.run(lambda: four.run(lambda: 1)))
error("not a function", lambda: four.run(3))
error("too many arguments", lambda: four.run(lambda x: x, args=(1, 2)))
tf.distribute.experimental_set_strategy(two)
show("set for all", [tf.distribute.get_strategy() is two, tf.distribute.has_strategy()])
tf.distribute.experimental_set_strategy(None)
show("back", tf.distribute.has_strategy())
show("numpy dataset", [x.tolist() for x in tf.data.Dataset.from_tensor_slices(np.arange(3)).as_numpy_iterator()])
show("is a strategy", [isinstance(s, tf.distribute.Strategy) for s in (four, one)])
