"""What `tf.print` writes: strings, structures, long ones over several lines, ragged and sparse tensors; `tf.strings.format`."""

import collections
import dataclasses
import sys

import numpy as np
import tensorflow as tf
from _facts import show

Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Setting:
    rate: float = 0.5


c = tf.constant
INPUTS = {
    "strings": ["text", c("text"), c(["a", "b c"]), c([["a"], [""]]), b"bytes", "é", c("é")],
    "quotes": ['q"', c('q"\n\t\\'), c(["q'"]), ["q'"], {"k": 'q"'}],
    "numbers": [1, 2.5, True, None, 1e-9, 12345678.9, 1 / 3, c(1 / 3), c([True, False]), c(5, tf.uint8)],
    "numpy": [np.float32(2.5), np.array([1, 2]), [np.int64(3)], np.array(["a"])],
    "types": [tf.float32, tf.TensorSpec([2]), tf.TensorShape([1, None]), [tf.int32, "x"]],
    "lists": [["a", 1, c(2), c("z")], ("a", c(1.0)), (c([1, 2]),), [], (), {}, [[], {}], [None], range(3)],
    "dictionaries": [{"b": 1, "a": c(["x"])}, {"z": {"y": [1, c(2)]}}, {3: c(1), 2: "two"}],
    "objects": [Point(1, c(["t"])), Setting(), {1}, [Setting(), None]],
    "ragged": [tf.ragged.constant([["a"], ["b", "é"]]), [tf.ragged.constant([[1], [2, 3]]), 1]],
    "sparse": [tf.sparse.from_dense([[1, 0], [0, 2]]), [tf.sparse.from_dense([["a", ""]]), 3]],
    "variables": [tf.Variable(1.0), [tf.Variable([1, 2])]],
    "no elements": [c([], tf.string), tf.zeros([0, 2])],
    "braces": ["{}", "{} {}", c(1)],
}
for name, inputs in INPUTS.items():
    print(f"{name}:")
    for value in inputs:
        tf.print(value, output_stream=sys.stdout)
    tf.print(*inputs, output_stream=sys.stdout)
    tf.print(inputs, output_stream=sys.stdout, sep=", ")
tf.print({"numbers": list(range(30)), "tensors": [c(i) for i in range(25)]}, output_stream=sys.stdout)
tf.print(["a long string " * 2] * 4, [c(["x" * 30])] * 4, output_stream=sys.stdout)
tf.print(c(["x"] * 10), tf.range(9), summarize=2, sep="|", end="!\n", output_stream=sys.stdout)
tf.print(c(["x"] * 10), tf.reshape(tf.range(24), [2, 3, 4]), summarize=-1, output_stream=sys.stdout)
tf.print(output_stream=sys.stdout)


@tf.function
def function(numbers, texts):
    tf.print("in a function", numbers, texts, {"d": numbers}, [texts, numbers], output_stream=sys.stdout)
    tf.print(texts, summarize=1, output_stream=sys.stdout)
    return numbers + 1


show("function", function(tf.range(8), c(["p", "q", "r", "s"])))
show("function again", function(tf.range(8) * 2, c(["t"] * 4)))
form = tf.strings.format
show("format", [form("{} and {}", (c(["a"]), c(1))), form("v {}", c([[1, 2], [3, 4]])), form("%", c("é"), "%")])
