"""Parts of ragged tensors: rows, slices of rows and of their entries, new axes; and what has no such part."""

import tensorflow as tf
from _facts import error, show

rows = tf.ragged.constant([[1, 2], [], [3, 4, 5]])
deep = tf.ragged.constant([[[1, 2], [3]], [], [[4]]])
texts = tf.ragged.constant([["a", "bb"], ["c"]])
vectors = tf.RaggedTensor.from_row_splits([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [0, 1, 3])
uniform = tf.RaggedTensor.from_uniform_row_length(rows[:2], 2)

for number in (0, 1, 2, -1, -3, tf.constant(1)):
    show(f"row {int(number)}", rows[number])
show("rows of rows", [deep[0], deep[0, 1], deep[0, 1, 0], deep[2][0], deep[-1, -1, -1]])
bounds = (None, 0, 1, -1, 2, -2, 5, -5)
for start in bounds:
    for stop in bounds:
        for step in (None, 2, -1, -2):
            key = slice(start, stop, step)
            show(f"{start}:{stop}:{step}", [rows[key], rows[:, key]])
show("within deep ones", [deep[:, :1], deep[..., :1], deep[..., 1:], deep[:, :, -1:], deep[:, 1:, :1], deep[0:2, 0:1]])
show("ellipsis", [rows[...], vectors[..., 0], deep[..., ::-1]])
show("new axes", [rows[tf.newaxis], rows[:, tf.newaxis], rows[..., tf.newaxis], rows[:, tf.newaxis, 1:]])
show("more new axes", [deep[:, tf.newaxis, :1], vectors[tf.newaxis, ..., 1]])
show("of vectors", [vectors[0], vectors[:, :, 0], vectors[:, 1:, 0], vectors[0, 0, 1], vectors[1, :, 1]])
show("of uniform rows", [uniform[0], uniform[:, 0], uniform[:, 1, :1], uniform[:, -1:]])
show("of texts", [texts[0], texts[0, 1], texts[:, :1], texts[::-1]])
show("of a list", rows[[1]])
error("no such row", lambda: rows[5])
error("no such row of rows", lambda: deep[2, 5])
error("no such entry", lambda: rows[0, 5])
error("too many keys", lambda: rows[0, 0, 0])
error("an entry of each row", lambda: rows[:, 0])
error("an entry of each row of rows", lambda: deep[..., 0])
error("a float", lambda: rows[1.5])
error("a text", lambda: rows["a"])
