"""Tensors of texts: comparisons with texts, sums, choices; eagerly, in functions and in datasets' functions."""

import numpy as np
import tensorflow as tf
from _facts import error, show

Dataset = tf.data.Dataset
texts = tf.constant(["a", "b"])
one = tf.constant("a")

show("tensor == text", texts == "a")
show("scalar == text", one == "a")
show("== bytes", texts == b"a")
show("== tensor", texts == tf.constant(["a", "x"]))
show("== scalar tensor", texts == one)
show("== list", texts == ["x", "b"])
show("== NumPy's texts", texts == np.array(["a", "x"]))
show("text == tensor", "a" == texts)  # noqa: SIM300
show("!= text", texts != "a")
show("!= tensor", texts != tf.constant(["a", "x"]))
show("umlauts", tf.constant("ä") == "ä")
show("other shapes are not equal", (texts == tf.constant(["a", "b", "c"])).numpy().all())
show("== None", texts == None)  # noqa: E711
show("equal", tf.equal(texts, "a"))
show("equal, text first", tf.equal("a", texts))
show("equal of two texts", tf.equal("a", "b"))
show("math.not_equal", tf.math.not_equal(texts, ["a", "x"]))
show("equal of a matrix and a row", tf.equal(tf.constant([["a", "b"], ["c", "a"]]), ["a", "b"]))
error("equal of other shapes", lambda: tf.equal(texts, ["a", "b", "c"]))
error("equal of a text and a number", lambda: tf.equal(texts, 1))
show("tensor + text", texts + "x")
show("text + tensor", "x" + texts)
show("tensor + tensor", texts + tf.constant(["c", "d"]))
show("tf.add", tf.add(texts, "y"))
show("list + tensor", ["c", "d"] + texts)
error("text + number", lambda: texts + 1)
error("text - text", lambda: texts - "a")
error("text < text", lambda: texts < "b")
error("text < text, by name", lambda: tf.less(texts, "b"))
show("where", tf.where([True, False], "a", "b"))
show("where of tensors", tf.where(texts == "a", texts, "z"))
show("where of a condition", tf.where(texts == "b"))
show("reduce_any", tf.reduce_any(texts == "b"))
show("argmax", tf.argmax(texts == "b"))
show("cast", tf.cast(texts == "b", tf.float32))
show("sum of matches", tf.reduce_sum(tf.cast(texts == "b", tf.int32)))
show("tile", tf.tile(texts, [2]))
show("expand_dims", tf.expand_dims(texts, 1))
show("squeeze", tf.squeeze(tf.constant([["a"], ["b"]])))
show("transpose", tf.transpose(tf.constant([["a", "b"]])))
show("reverse", tf.reverse(texts, [0]))
show("boolean_mask", tf.boolean_mask(texts, texts == "b"))
show("broadcast_to", tf.broadcast_to(one, [2]))
show("unstack", tf.unstack(texts))
show("split", tf.split(texts, 2))
show("identity", tf.identity(texts))
show("reshape", tf.reshape(texts, [2, 1]))
show("pad", tf.pad(texts, [[0, 1]], constant_values="-"))
show("zeros_like", tf.zeros_like(texts))
show("slice", tf.slice(texts, [1], [1]))
show("gather_nd", tf.gather_nd(texts, [[1], [0]]))


@tf.function
def is_a(text):
    return text == "a", tf.where(text == "a", 1, 2), "<" + text


show("function", is_a(texts))
show("in map", [bool(x) for x in Dataset.from_tensor_slices(["a", "b"]).map(lambda x: x == "a")])
show("in map, not", [bool(x) for x in Dataset.from_tensor_slices(["a", "b"]).map(lambda x: x != "a")])
show("in filter", len(list(Dataset.from_tensor_slices(["a", "b", "a"]).filter(lambda x: x == "a"))))
show("in filter, by name", len(list(Dataset.from_tensor_slices(["a", "b"]).filter(lambda x: tf.equal(x, "a")))))
show("in a batch", list(Dataset.from_tensor_slices(["a", "b"]).batch(2).map(lambda x: tf.cast(x == "a", tf.int64))))
labels = Dataset.from_tensor_slices((["cat", "dog"], [1.0, 2.0]))
show("labels", [x.numpy().tolist() for x, _ in labels.map(lambda name, x: (tf.where(name == "cat", 0, 1), x))])


def label(name):
    if name == "cat":
        return 0
    return 1


show("if in map", [int(x) for x in Dataset.from_tensor_slices(["cat", "dog"]).map(label)])
show("in a loop", [1 for x in Dataset.from_tensor_slices(["a", "b"]) if x == "a"])
