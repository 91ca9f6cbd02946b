"""Tables that change: entries are put in, found, taken out; also by functions that are compiled."""

import tensorflow as tf
from _facts import error, show

E = tf.lookup.experimental
table = E.MutableHashTable(tf.string, tf.int64, -1)
table.insert(tf.constant(["x", "y"]), tf.constant([1, 2], tf.int64))
show("size", table.size())
show("found", table.lookup(tf.constant(["y", "n"])))
table.insert(tf.constant(["x"]), tf.constant([9], tf.int64))
show("another value", table["x"])
others = tf.constant([5, 6], tf.int64)
show("other defaults", table.lookup(tf.constant(["y", "n"]), dynamic_default_values=others))
table.remove(tf.constant(["y", "q"]))
show("taken out", table.size())
show("all", table.export())
error("keys of another type", lambda: table.insert(tf.constant([1]), tf.constant([1], tf.int64)))
error("values of another type", lambda: table.insert(tf.constant(["x"]), tf.constant([1])))
error("too few values", lambda: table.insert(tf.constant(["x", "z"]), tf.constant([1], tf.int64)))

rows = E.MutableHashTable(tf.int64, tf.float32, [0.0, -1.0])
rows.insert(tf.constant([3], tf.int64), tf.constant([[1.0, 2.0]]))
show("rows", rows.lookup(tf.constant([3, 4], tf.int64)))
show("of a matrix", rows.lookup(tf.constant([[3], [4]], tf.int64)))
show("all rows", rows.export())
error("no row", lambda: rows.insert(tf.constant([3], tf.int64), tf.constant([1.0])))

dense = E.DenseHashTable(tf.int64, tf.int64, -1, empty_key=0, deleted_key=-1)
dense.insert(tf.constant([1, 2, 3], tf.int64), tf.constant([10, 20, 30], tf.int64))
show("dense", dense.lookup(tf.constant([2, 5], tf.int64)))
dense.erase(tf.constant([2], tf.int64))
show("erased", dense.size())
dense.insert_or_assign(tf.constant([1], tf.int64), tf.constant([7], tf.int64))
show("assigned", dense.lookup(tf.constant([1], tf.int64)))
error("the empty key", lambda: dense.insert(tf.constant([0], tf.int64), tf.constant([1], tf.int64)))
error("the deleted key", lambda: dense.insert(tf.constant([-1], tf.int64), tf.constant([1], tf.int64)))
error("the empty key looked up", lambda: dense.lookup(tf.constant([0], tf.int64)))
error("both the same", lambda: E.DenseHashTable(tf.int64, tf.int64, -1, empty_key=0, deleted_key=0))


@tf.function
def put(key, value):
    table.insert(key, value)
    return table.size(), table.lookup(tf.constant(["x", "g1"]))


show("put", put(tf.constant(["g1"]), tf.constant([5], tf.int64)))
show("put again", put(tf.constant(["g2"]), tf.constant([6], tf.int64)))
show("and again", put(tf.constant(["g1"]), tf.constant([7], tf.int64)))


@tf.function
def count():
    return table.size()


show("counted", count())
table.remove(tf.constant(["g1"]))
show("counted again", count())
seen = tf.data.Dataset.from_tensor_slices(["x", "g2", "n"]).map(table.lookup)
show("in a dataset", list(seen.as_numpy_iterator()))
table.insert(tf.constant(["n"]), tf.constant([8], tf.int64))
show("later", list(seen.as_numpy_iterator()))
