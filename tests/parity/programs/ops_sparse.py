"""`tf.SparseTensor` in functions, under tapes and in replicas."""

import tensorflow as tf
from _facts import error, show

sparse = tf.SparseTensor([[0, 1], [1, 0], [1, 2]], [5.0, -2.0, 3.0], [2, 3])
dense = tf.reshape(tf.range(6, dtype=tf.float32), [2, 3])
parts = lambda s: [s.indices, s.values, s.dense_shape]


@tf.function
def product(matrix, vector):
    return tf.sparse.sparse_dense_matmul(tf.sparse.reorder(matrix), vector)


@tf.function
def doubled(matrix):
    return tf.sparse.map_values(tf.multiply, tf.sparse.transpose(matrix), 2.0)


@tf.function
def made(values):
    matrix = tf.SparseTensor([[0, 0], [1, 1]], values, [2, 2])
    return tf.sparse.to_dense(matrix), tf.sparse.reduce_sum(matrix, 1), tf.sparse.softmax(matrix).values


show("product", product(sparse, tf.ones([3, 2])))
show("result of a function", parts(doubled(sparse)))
show("made in a function", made(tf.constant([2.0, 3.0])))

weights, values = tf.Variable([[1.0], [2.0], [3.0]]), tf.constant([1.0, -1.0, 2.0])
with tf.GradientTape(persistent=True) as tape:
    tape.watch(values)
    loss = tf.reduce_sum(tf.sparse.sparse_dense_matmul(sparse.with_values(values), weights) ** 2)
    whole = tf.reduce_sum(tf.sparse.to_dense(sparse.with_values(values)) ** 2)
    summed = tf.reduce_sum(tf.sparse.add(sparse.with_values(values), dense) ** 2)
    rows = tf.reduce_sum(tf.sparse.reduce_sum(sparse.with_values(values), 1) ** 2)
show("gradient of the weights", tape.gradient(loss, weights))
for name, target in {"product": loss, "whole": whole, "sum with a tensor": summed, "rows": rows}.items():
    show(f"gradient of the values, {name}", tape.gradient(target, values))


@tf.function
def step(matrix, lookup):
    with tf.GradientTape() as tape:
        found = tf.sparse.segment_sum(lookup, [0, 2, 2], [0, 0, 1], num_segments=2)
        loss = tf.reduce_sum(tf.sparse.sparse_dense_matmul(matrix, found * found))
    return loss, tf.convert_to_tensor(tape.gradient(loss, lookup))


show("step", step(tf.sparse.from_dense([[1.0, 0.0], [0.0, 2.0]]), weights))
strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])


@tf.function
def replicated(matrix):
    one = lambda: (
        tf.sparse.reduce_sum(matrix)
        * (tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32) + 1)
    )
    return strategy.reduce("sum", strategy.run(one), axis=None)


show("in replicas", replicated(sparse))
show("as an argument of replicas", strategy.reduce("sum", strategy.run(tf.sparse.reduce_sum, (sparse,)), axis=None))
show(
    "embedding",
    tf.nn.embedding_lookup_sparse(
        weights, tf.SparseTensor([[0, 0], [0, 1], [2, 0]], [1, 2, 0], [3, 2]), None, combiner="sum"
    ),
)
show("filled", [*parts(tf.sparse.fill_empty_rows(tf.SparseTensor([[1, 0]], [7], [3, 2]), 0)[0])])
show("names", [type(sparse).__name__, isinstance(sparse, tf.SparseTensor), tf.is_tensor(sparse)])
error("not a matrix", lambda: tf.sparse.sparse_dense_matmul(tf.SparseTensor([[0]], [1.0], [2]), dense))
error("out of order", lambda: tf.sparse.to_dense(tf.SparseTensor([[1], [0]], [1, 2], [2])))
