"""Operators, functions of each value, broadcasting and reductions of ragged tensors; and what does not fit together."""

import tensorflow as tf
from _facts import error, show

rows = tf.ragged.constant([[1, 2], [], [3]])
halves = tf.cast(rows, tf.float32) / 2.0
deep = tf.ragged.constant([[[1, 2], [3]], [], [[4]]])
vectors = tf.RaggedTensor.from_row_splits([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [0, 1, 3])
column = tf.constant([[10], [20], [30]])

show("with a number", [rows + 1, 1 + rows, rows - 1, 5 - rows, rows * 2, 2 * rows, rows**2, 2**rows])
show("divided", [rows / 2, 2 / rows, rows // 2, 7 // rows, rows % 2, 7 % rows])
show("compared", [rows > 1, rows >= 2, rows < 2, rows <= 1, rows == 2, rows != 2, 2 > rows])
show("logical", [(rows > 1) & (rows < 3), (rows > 1) | (rows == 1), (rows > 1) ^ (rows > 2), ~(rows > 1)])
show("signs", [-rows, abs(-rows)])
show("equal to others", [rows == rows, rows == tf.ragged.constant([[1], [2], [3]]), rows != column, rows == None])  # noqa: E711
show("with a column", [rows + column, column - rows, rows * [[1], [2], [3]]])
show("with a row", [rows[2:] + tf.constant([[1]]), tf.ragged.constant([[1], [2, 3]]) + tf.constant([5])])
show("deep", [deep + tf.constant([[[10]], [[20]], [[30]]]), deep * deep])
show("vectors", [vectors + [10.0, 20.0], vectors + tf.constant([[[1.0]], [[2.0]]]), vectors * vectors[..., :1]])
show("of rows and vectors", vectors * tf.ragged.constant([[1.0], [2.0, 3.0]])[..., tf.newaxis])
error("other rows", lambda: rows + tf.ragged.constant([[1], [2], [3]]))
error("other sizes", lambda: rows + tf.constant([[1, 2], [3, 4], [5, 6]]))
error("ranks that do not fit", lambda: deep + rows)
error("other types", lambda: rows * 1.5)
error("of no bools", lambda: rows & rows)
error("splits of other types", lambda: rows + rows.with_row_splits_dtype(tf.int32))
error("matrices", lambda: rows @ rows)

show("functions", [tf.sqrt(halves), tf.math.is_nan(halves), tf.exp(halves), tf.round(halves), tf.square(rows)])
show(
    "types",
    [tf.cast(rows, tf.float64), tf.zeros_like(rows), tf.ones_like(rows, dtype=tf.float32), tf.bitcast(rows, tf.uint32)],
)
show("as they are", [tf.identity(rows), tf.stop_gradient(rows)])
show("two", [tf.add(rows, rows), tf.maximum(rows, 2), tf.pow(rows, 2), tf.equal(rows, 2), tf.add_n([rows, rows, rows])])
show("limits", tf.clip_by_value(rows, 2, 2))
show("where", [tf.where(rows > 1), tf.where(deep > 2), tf.where(rows > 1, rows, 0), tf.where(rows > 1, 1, rows * 10)])
show("networks", [tf.nn.relu(-rows), tf.nn.sigmoid(halves), tf.nn.softmax(halves), tf.nn.softmax(vectors, axis=1)])
show("one hot", tf.one_hot(rows, 4))
show("dropped out", tf.nn.dropout(halves, 0.0))
show("embedded", tf.nn.embedding_lookup(tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]), rows))
show("mapped", [tf.ragged.map_flat_values(tf.square, deep), tf.ragged.map_flat_values(tf.add, rows, rows)])
show("mapped with a keyword", tf.ragged.map_flat_values(tf.one_hot, rows, depth=3, dtype=tf.int32))
error("mapped to fewer", lambda: tf.ragged.map_flat_values(tf.reduce_sum, rows))
error("mapped with other rows", lambda: tf.ragged.map_flat_values(tf.add, rows, tf.ragged.constant([[1], [2], [3]])))
show("sizes", [tf.size(rows), tf.rank(deep), tf.size(vectors, out_type=tf.int64)])

for name in ("sum", "mean", "max", "min", "prod"):
    reduce = getattr(tf, f"reduce_{name}")
    show(f"{name} of all", [reduce(rows), reduce(deep), reduce(vectors)])
    show(f"{name} of axes", [reduce(rows, axis) for axis in (0, 1, -1)] + [reduce(vectors, axis) for axis in (0, 1, 2)])
    show(f"{name} of deep axes", [reduce(deep, axis) for axis in (0, 1, 2, [1, 2], [0, 1], [0, 2], [0, 1, 2])])
    show(
        f"{name} with axes kept",
        [reduce(rows, 1, keepdims=True), reduce(deep, 2, keepdims=True), reduce(rows, keepdims=True)],
    )
    show(f"{name} with several kept", [reduce(deep, [1, 2], keepdims=True), reduce(rows, 0, keepdims=True)])
show(
    "any and all",
    [tf.reduce_any(rows > 1, 1), tf.reduce_all(rows > 1, 1), tf.reduce_all(rows > 0), tf.reduce_any(rows > 2, 0)],
)
show("spread", [tf.math.reduce_variance(halves, 1), tf.math.reduce_std(halves, 1), tf.math.reduce_variance(vectors, 1)])
show("logsumexp", tf.reduce_logsumexp(vectors, 1))
show("of empty rows", [tf.reduce_sum(tf.ragged.constant([[], []]), 1), tf.reduce_max(tf.ragged.constant([[], []]), 1)])
show(
    "so far",
    [tf.cumsum(rows, 1), tf.cumsum(deep, 2), tf.cumsum(rows, 1, reverse=True), tf.cumsum(rows, 1, exclusive=True)],
)
show("counts", [tf.math.bincount(rows), tf.math.bincount(rows, axis=-1)])
error("no such axis", lambda: tf.reduce_sum(rows, 5))
error("sum of texts", lambda: tf.reduce_sum(tf.ragged.constant([["a"]]), 1))
error("no function of ragged ones", lambda: tf.transpose(rows))
