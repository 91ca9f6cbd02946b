"""Lists with NumPy's numbers: integers count as Python's, floats keep their type, nothing is cut."""

import numpy as np
import tensorflow as tf
from _facts import error, show

KINDS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"
for kind in KINDS.split():
    number = np.dtype(kind).type
    show(f"{kind}, a list", tf.constant([number(1), number(0)]))
    show(f"{kind}, arrays", tf.constant([np.array([1, 2], kind), np.array([3, 4], kind)]))
    show(f"{kind}, an integer behind", tf.constant([number(1), 2]))
    show(f"{kind}, a tensor of it", tf.constant(number(1)))
    if kind[0] != "c":
        show(f"{kind}, a float behind", tf.constant([number(1), 1.5]))
        show(f"{kind}, an integer before", tf.constant([2, number(1)]))
        show(f"{kind}, a float before", tf.constant([1.5, number(1)]))
show("nested", tf.constant([(np.int64(1), np.int64(2)), [np.int64(3), 4]]))
show("large", tf.constant([np.int64(2**40), np.int64(1)]))
show("large behind", tf.constant([np.int32(1), 2**40]))
show("a large array", tf.constant([np.array([2**40])]))
show("booleans", tf.constant([np.True_, False]))
error("a boolean and an integer", lambda: tf.constant([np.True_, 1]))
error("a number too large", lambda: tf.constant([np.uint64(2**63 + 1)]))
for kind in ("float32", "int64", "uint8", "float16"):
    show(f"integers as {kind}", tf.constant([np.int64(1), np.int64(2)], kind))
show("floats as float64", tf.constant([np.float32(1), np.float32(2)], "float64"))
show("floats as float32", tf.constant([np.float64(1.5)], "float32"))
error("floats as int32", lambda: tf.constant([np.float64(1.5)], "int32"))
show("a dataset", [element for element in tf.data.Dataset.from_tensor_slices([np.int64(1), np.int64(2)])])
show("a dataset of arrays", [e for e in tf.data.Dataset.from_tensor_slices(np.array([1, 2]))])
show("a variable", tf.Variable([np.int64(1)]))
show("sum", tf.reduce_sum([np.int64(1), np.int64(2)]))
show("operand", tf.constant([1.0, 2.0]) * [np.int64(1), np.int64(2)])
show("operand of floats", tf.constant([1.0, 2.0], tf.float64) * [np.float32(1), np.float32(2)])
show("stacked", tf.stack([np.int64(1), np.int64(2)]))
show("joined", tf.concat([np.array([1]), np.array([2])], 0))
show("argument", tf.function(lambda x: x)([np.int64(1)]))
error("the largest and a small one", lambda: tf.constant([2**63, 1]))
error("the largest unsigned and a small one", lambda: tf.constant([np.uint64(2**63), np.int64(-1)]))
show("the largest, unsigned", tf.constant([2**63, 1], tf.uint64))
show("large, of several kinds", tf.constant([np.uint64(5), np.int64(2**60 + 1)]))
show("booleans and integers as integers", tf.constant([True, 2], tf.int32))
show("booleans and floats as floats", tf.constant([True, 2.5], tf.float32))
error("a text and a number", lambda: tf.constant(["a", 1]))
error("a number and a text", lambda: tf.constant([1, "a"]))
show("texts of several kinds", tf.constant(["a", b"b", np.str_("c"), np.bytes_(b"d")]))
show("bytes that end with zeros", tf.constant([b"a\x00", b"b"]))
show("a text that ends with zeros", tf.constant(b"a\x00\x00").numpy() == b"a\x00\x00")
show("stacked, a float behind", tf.stack([2, np.float64(1.5)]))
show("stacked, an array of floats behind", tf.stack([[3, 4], np.array([1.5, 2.0])]))
show("stacked, a small and a negative one", tf.stack([np.uint32(5), -1]))
show("stacked, Python's", tf.stack([1, 2.5]))
show("stacked with a tensor", tf.stack([tf.constant(1.0), 2.0]))
