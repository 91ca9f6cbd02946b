"""Gradients of lookups: indexed slices up to the optimizer."""

import tensorflow as tf
from _facts import error, show

table = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
ids = tf.constant([[0, 2], [2, 2]])


def parts(gradient):
    if isinstance(gradient, tf.IndexedSlices):
        return ["sparse", gradient.values, gradient.indices, gradient.dense_shape]
    return ["none" if gradient is None else "dense", gradient]


def gradient_of(fn, source=table):
    with tf.GradientTape() as tape:
        if not isinstance(source, tf.Variable):
            tape.watch(source)
        y = fn(source)
    return parts(tape.gradient(y, source))


lookup = tf.nn.embedding_lookup
show("gather", gradient_of(lambda t: tf.gather(t, ids) ** 2))
show("embedding_lookup", gradient_of(lambda t: lookup(t, [1, 0]) * 3.0))
show("scalar index", gradient_of(lambda t: tf.gather(t, 1)))
show("int64 indices", gradient_of(lambda t: tf.gather(t, tf.constant([1, 1], tf.int64))))
show("two lookups", gradient_of(lambda t: tf.reduce_sum(lookup(t, [0, 1])) + 2 * tf.reduce_sum(lookup(t, [1]))))
show("a lookup and the whole", gradient_of(lambda t: tf.reduce_sum(lookup(t, [0, 1])) + tf.reduce_sum(t * 2)))
show("axis 1", gradient_of(lambda t: tf.gather(t, [1, 1], axis=1)))
show("axis -2", gradient_of(lambda t: tf.gather(t, [1, 1], axis=-2)))
show("batch_dims", gradient_of(lambda t: tf.gather(t, [[1], [0], [1]], batch_dims=1)))
show("slice", gradient_of(lambda t: t[1:]))
show("gather_nd of rows", gradient_of(lambda t: tf.gather_nd(t, [[1], [2]])))
show("gather_nd of elements", gradient_of(lambda t: tf.gather_nd(t, [[1, 0], [1, 0]])))
show("a method", gradient_of(lambda t: t.sparse_read([2, 0])))
show("of something computed", gradient_of(lambda t: tf.gather(t * 2, [0, 0])))
show("a tensor", gradient_of(lambda t: tf.gather(t, [1, 1]), tf.constant([1.0, 2.0, 3.0])))
show("not connected", gradient_of(lambda t: tf.constant(1.0)))
compiled = tf.function(lambda: [x for x in gradient_of(lambda t: lookup(t, ids) ** 2) if not isinstance(x, str)])


@tf.function
def slices():
    with tf.GradientTape() as tape:
        y = lookup(table, [2, 0])
    return tape.gradient(y, table)


show("returned by a function", parts(slices()))
with tf.GradientTape(persistent=True) as tape:
    rows = lookup(table, [1, 1])
    loss = tf.reduce_sum(rows**3)
gradient = tape.gradient(loss, table)
show("as a tensor", tf.convert_to_tensor(gradient))
error("times two", lambda: gradient * 2.0)
show("plus", tf.ones([3, 2]) + gradient)
show("weighted", parts(tape.gradient(rows, table, output_gradients=tf.constant([[1.0, 2.0], [3.0, 4.0]]))))
show("jacobian", tape.jacobian(rows, table))
clipped, norm = tf.clip_by_global_norm([gradient, None, tf.ones([2])], 1.0)
show("clip_by_global_norm", [norm, parts(clipped[0]), clipped[1:]])
show("clip_by_norm", parts(tf.clip_by_norm(gradient, 1.0)))
show("global_norm", tf.linalg.global_norm([gradient]))
show("cast", parts(tf.cast(gradient, tf.float64)) if not isinstance(gradient, tf.Tensor) else None)
show("sum", tf.reduce_sum(gradient))
show("nest", len(tf.nest.flatten([gradient, 1])))
with tf.GradientTape() as outer:
    with tf.GradientTape() as inner:
        y = tf.reduce_sum(lookup(table, [0, 2]) ** 3)
    first = inner.gradient(y, table)
    z = tf.reduce_sum(first.values * 2.0)
show("second order", parts(outer.gradient(z, table)))
