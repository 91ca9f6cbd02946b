"""Ragged tensors as text: `print`, `repr` and `tf.print`; rows of one length, of matrices, of texts, and many of them."""

import sys

import tensorflow as tf

matrix = tf.ragged.constant([[1, 2], [], [3]])
deep = tf.ragged.constant([[[1, 2], [3]], [], [[4]]])
texts = tf.ragged.constant([["a", "bb"], ["c"]])
vectors = tf.RaggedTensor.from_row_splits([[1.0, 2.0], [3.0, 4.5], [5.0, 6.0]], [0, 1, 3])
many = tf.ragged.range(tf.range(12))
flags = tf.ragged.constant([[True], [], [False, True]])
equal_rows = tf.ragged.constant([[1, 2], [3, 4]])
none = tf.ragged.constant([[], []])

for name, value in {
    "matrix": matrix,
    "deep": deep,
    "texts": texts,
    "vectors": vectors,
    "many": many,
    "flags": flags,
    "equal rows": equal_rows,
    "none": none,
    "no rows": matrix[:0],
    "uniform": tf.RaggedTensor.from_uniform_row_length(matrix, 3),
}.items():
    print(name, value, repr(value))
    print(name, value.shape, value.dtype, value.ragged_rank, value.uniform_row_length, value.to_list())
    print(name, tf.type_spec_from_value(value))
print([matrix, {"deep": deep}])
for value in (matrix, deep, texts, vectors, many, equal_rows, none):
    tf.print(value, output_stream=sys.stdout)
tf.print("with", matrix, 1, output_stream=sys.stdout)
tf.print(many, summarize=-1, output_stream=sys.stdout)
tf.print(many, summarize=1, output_stream=sys.stdout)
tf.print({"a": matrix, "b": [texts]}, output_stream=sys.stdout)
