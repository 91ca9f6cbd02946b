"""Types: what operations give, and which mixtures they refuse."""

import numpy as np
import tensorflow as tf
from _facts import error, show

i, j, f, d, b = (
    tf.constant(7),
    tf.constant(2, tf.int64),
    tf.constant(1.5),
    tf.constant(2.5, tf.float64),
    tf.constant(True),
)
show("int / int", i / 2)
show("int // int", [i // 2, -i // 2, tf.truncatediv(-i, 2)])
show("mod", [i % 3, -i % 3, tf.math.floormod(-7.5, 2.0)])
show("Python numbers", [f + 1, f * 2.5, 2 - f, i + 1, i * 3, 2**f, d + 1])
for name, call in {
    "int32 + int64": lambda: i + j,
    "float32 + float64": lambda: f + d,
    "int32 + float32": lambda: i + f,
    "int + Python float": lambda: i + 1.5,
    "bool + bool": lambda: b + b,
    "bool + int": lambda: b + i,
    "matmul of types": lambda: tf.ones([2, 2]) @ tf.ones([2, 2], tf.float64),
    "concat of types": lambda: tf.concat([[1], [1.5]], 0),
    "sqrt of int": lambda: tf.sqrt(i),
    "mean of bool": lambda: tf.reduce_mean(b),
    "and of ints": lambda: tf.logical_and(i, i),
    "where of types": lambda: tf.where(b, i, f),
    "equal of types": lambda: tf.equal(i, f),
}.items():
    error(name, call)
show("comparisons", [i > 3, f <= 1.5, tf.not_equal(i, 7), i == 7, f != 1.0])
show(
    "cast",
    [
        tf.cast(2.7, tf.int32),
        tf.cast(-2.7, tf.int64),
        tf.cast(i, tf.float16),
        tf.cast(f, tf.bool),
        tf.cast(b, tf.float32),
    ],
)
show("saturate", [tf.saturate_cast(300, tf.uint8), tf.saturate_cast(-5.5, tf.uint8)])
show("overflow", [tf.constant(2**31 - 1) + 1, tf.constant(200, tf.uint8) + tf.constant(100, tf.uint8)])
show("mean of ints", [tf.reduce_mean([1, 2]), tf.reduce_sum(tf.constant([1, 2], tf.int8)), tf.reduce_prod([2.0, 3.0])])
show("argmax", [tf.argmax([1, 3, 2]), tf.argmax([1.0, 3.0], output_type=tf.int32)])
show(
    "numpy arrays keep types",
    [tf.constant(np.float64(1.0)), tf.constant(np.array([1])), tf.constant([1.0, 2]), tf.constant([True])],
)
show("convert", [tf.convert_to_tensor(3, dtype=tf.float64), tf.convert_to_tensor([[1], [2]])])
error("convert to another type", lambda: tf.convert_to_tensor(f, dtype=tf.int32))
error("float as int", lambda: tf.constant(1.5, tf.int32))
error("ragged", lambda: tf.constant([[1], [2, 3]]))
show("bitwise", [tf.bitwise.bitwise_and(6, 3), 6 & tf.constant(3), tf.bitwise.left_shift(1, 3), ~tf.constant(5)])
show("round", [tf.round([0.5, 1.5, -0.5, 2.5]), tf.math.ceil(1.2), tf.floor(-1.2), tf.math.rint(2.5)])
show("special", [tf.maximum(float("nan"), 1.0), tf.reduce_max([float("-inf"), 2.0]), tf.math.divide_no_nan(1.0, 0.0)])
show("properties", [f.dtype.is_floating, i.dtype.is_integer, d.dtype.name, d.dtype.size, i.dtype.max, b.dtype.is_bool])
show(
    "types equal",
    [
        f.dtype == tf.float32,
        f.dtype == "float32",
        tf.as_dtype("int64") is tf.int64,
        tf.float32.as_numpy_dtype is np.float32,
    ],
)
show("complex", [tf.complex(1.0, 2.0), tf.abs(tf.complex(3.0, 4.0)), tf.math.conj(tf.complex(1.0, 2.0))])
show("pow", [i**2, tf.pow(2.0, 3.0), tf.constant([2.0, 3.0]) ** [2.0, 0.5]])
show("nothing", [tf.constant([], tf.int32), tf.reduce_sum(tf.constant([], tf.int64)), tf.constant([])])
