"""Scattered updates of variables, eagerly and compiled."""

import tensorflow as tf
from _facts import error, show


def fresh():
    return tf.Variable([10.0, 20.0, 30.0, 40.0])


slices = tf.IndexedSlices(tf.constant([1.0, 2.0, 3.0]), tf.constant([0, 2, 0]), tf.constant([4]))
distinct = tf.IndexedSlices(tf.constant([1.0, 50.0]), tf.constant([0, 2]))
for name in ("add", "sub", "mul", "div", "min", "max", "update"):
    given = distinct if name == "update" else slices
    v = fresh()
    show(f"scatter_{name}", getattr(v, f"scatter_{name}")(given))
    show(f"scatter_{name} changed", v)
for name in ("add", "sub", "update", "max", "min"):
    v = fresh()
    show(f"scatter_nd_{name}", getattr(v, f"scatter_nd_{name}")([[1], [3]], [35.0, 5.0]))
matrix = tf.Variable(tf.zeros([3, 2]))
matrix.scatter_add(tf.IndexedSlices(tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([2, 2])))
show("rows", matrix)
matrix.scatter_nd_update([[0, 1], [1, 0]], [7.0, 8.0])
show("elements", matrix)
show("read back", matrix.gather_nd([[0, 1], [2, 0]]))
batch = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
batch.batch_scatter_update(tf.IndexedSlices(tf.constant([[9.0], [8.0]]), tf.constant([[1], [0]])))
show("batch_scatter_update", batch)
v = fresh()
error("not slices", lambda: v.scatter_add(tf.constant([1.0])))
error("index outside", lambda: v.scatter_add(tf.IndexedSlices(tf.constant([1.0]), tf.constant([9]))))
show("unchanged", v)


@tf.function
def compiled(values, indices):
    v.scatter_sub(tf.IndexedSlices(values, indices))
    v.scatter_nd_add([[3]], [0.5])
    return v.sparse_read(indices)


show("compiled", compiled(tf.constant([1.0, 2.0]), tf.constant([1, 1])))
show("after", v)
strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
with strategy.scope():
    mirrored = tf.Variable([1.0, 2.0, 3.0], aggregation=tf.VariableAggregation.SUM)
mirrored.scatter_add(tf.IndexedSlices(tf.constant([10.0]), tf.constant([1])))
show("mirrored, cross-replica", mirrored)
show("slices", [slices.values, slices.indices, slices.dense_shape, slices.shape.as_list(), slices.dtype.name])
show("no dense shape", [distinct.dense_shape, distinct.shape.rank])
show("converted", tf.convert_to_tensor(slices))
error("converted without shape", lambda: tf.convert_to_tensor(distinct))
show("negated", (-slices).values)
show("is_tensor", tf.is_tensor(slices))
