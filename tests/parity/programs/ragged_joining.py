"""Ragged tensors put together, repeated, turned around, taken by numbers and by masks; and what does not fit."""

import tensorflow as tf
from _facts import error, show

rows = tf.ragged.constant([[1, 2], [], [3]])
other = tf.ragged.constant([[4], [5, 6], []])
deep = tf.ragged.constant([[[1, 2], [3]], [], [[4]]])
vectors = tf.RaggedTensor.from_row_splits([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [0, 1, 3])
texts = tf.ragged.constant([["a", "bb"], [], ["c"]])

for axis in (0, 1, -1):
    show(
        f"concat {axis}", [tf.concat([rows, other], axis), tf.concat([texts, texts], axis), tf.concat([rows] * 3, axis)]
    )
show("concat of deep ones", [tf.concat([deep, deep], axis) for axis in (0, 1, 2)])
show("concat of vectors", [tf.concat([vectors, vectors], axis) for axis in (0, 1, 2)])
show(
    "with tensors",
    [tf.concat([rows, [[7], [8], [9]]], axis) for axis in (0, 1)] + [tf.concat([tf.constant([[1, 2]]), rows], 0)],
)
show("one", tf.concat([rows], 0))
for axis in (0, 1):
    show(f"stack {axis}", [tf.stack([rows, other], axis), tf.stack([texts, texts], axis), tf.stack([deep, deep], axis)])
show("stack of the same rows", [tf.stack([rows, rows], 2), tf.stack([rows, rows], -1)])
show("stack of tensors", [tf.ragged.stack([[1, 2], [3]]), tf.ragged.stack([tf.constant(1), tf.constant(2)])])
show("stack of one", tf.ragged.stack([rows]))
error("other numbers of rows", lambda: tf.concat([rows, [[1], [2]]], 1))
error("other ranks", lambda: tf.concat([rows, deep], 0))
error("no such axis", lambda: tf.concat([rows, rows], 2))
error("nothing", lambda: tf.ragged.stack([]))

show(
    "tile",
    [
        tf.tile(rows, [2, 1]),
        tf.tile(rows, [1, 2]),
        tf.tile(rows, [2, 2]),
        tf.tile(deep, [1, 2, 1]),
        tf.tile(vectors, [1, 1, 2]),
    ],
)
show("new axes", [tf.expand_dims(rows, axis) for axis in (0, 1, 2, -1)] + [tf.expand_dims(deep, 2)])
show("without them", [tf.squeeze(tf.expand_dims(rows, axis), axis) for axis in (0, 1, 2)])
show("without several", tf.squeeze(tf.expand_dims(tf.expand_dims(rows, 0), 2), [0, 2]))
error("all axes", lambda: tf.squeeze(rows))
error("of another size", lambda: tf.squeeze(rows, 1))
error("no such new axis", lambda: tf.expand_dims(rows, 5))
show("reversed", [tf.reverse(rows, [1]), tf.reverse(rows, [0]), tf.reverse(deep, [0, 2]), tf.reverse(vectors, [-1])])
show("split", [tf.split(rows, [1, 2]), tf.split(rows, 3)])

show("gather", [tf.gather(rows, [2, 0, 0]), tf.gather(rows, [[2], [0]]), tf.gather(rows, 1), tf.gather(deep, [2, 0])])
show("gather by ragged numbers", [tf.gather(rows, other[:0]), tf.gather(rows, tf.ragged.constant([[0, 1], [2]]))])
show("gather of tensors", [tf.gather([10, 20, 30, 40], rows), tf.gather([[1, 2], [3, 4], [5, 6], [7, 8]], rows)])
show("gather along rows", tf.gather(vectors, [0, 0], axis=1))
show("gather of inner axes", tf.gather(vectors, [1], axis=2))
show("gather in rows", tf.gather(rows, tf.ragged.constant([[1, 0], [], [0]]), batch_dims=1))
show("gather in rows of tensors", tf.gather([[1, 2], [3, 4]], tf.ragged.constant([[1, 0, 1], [0]]), batch_dims=1))
error("gather of no row", lambda: tf.gather(rows, [5]))
show(
    "parts",
    [tf.gather_nd(rows, [[0, 1], [2, 0]]), tf.gather_nd(rows, [[0], [2]]), tf.gather_nd(deep, [[0, 1], [2, 0]])],
)
show("one part", tf.gather_nd(deep, [0, 1, 0]))
show("of vectors", tf.gather_nd(vectors, [[1, 1, 0], [0, 0, 1]]))

mask = tf.ragged.boolean_mask
show(
    "masked",
    [
        mask(rows, [True, False, True]),
        mask(rows, rows > 1),
        mask(rows, tf.ragged.constant([[True, False], [], [True]])),
    ],
)
show("masked tensors", [mask([[1, 2], [3, 4]], [[True, False], [True, True]]), mask([1, 2, 3], [True, False, True])])
show("masked deep", [mask(deep, tf.ragged.constant([[True, False], [], [True]])), mask(deep, deep > 1)])
error("masked by no mask", lambda: mask(rows, 1))
stack_partitions = tf.ragged.stack_dynamic_partitions
show("partitions", [stack_partitions(["a", "b", "c"], [1, 0, 1], 3), stack_partitions(rows, [1, 0, 1], 3)])
show("partitions of rows", tf.dynamic_partition(rows, [0, 1, 0], 2))
error("no such partition", lambda: stack_partitions(["a"], [3], 2))
show("segments", [tf.math.unsorted_segment_sum(rows, [0, 1, 0], 2), tf.math.unsorted_segment_max(rows, [1, 1, 0], 2)])
show(
    "crossed",
    [
        tf.ragged.cross([texts, rows]),
        tf.ragged.cross([texts, [["d"], ["e"], ["f"]]]),
        tf.ragged.cross([rows, rows, texts]),
    ],
)
error("crossed with other rows", lambda: tf.ragged.cross([texts, rows[1:]]))
error("crossed deep", lambda: tf.ragged.cross([deep, deep]))
