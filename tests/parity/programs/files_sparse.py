"""Sparse tensors as strings, byte for byte, and back; names of files that are matched once."""

import os
import pathlib
import tempfile

import numpy as np
import tensorflow as tf
from _facts import error, show

os.chdir(tempfile.mkdtemp())


def parts(sparse):
    return [sparse.indices, sparse.values, sparse.dense_shape]


numbers = tf.sparse.from_dense([[1, 0, 0], [0, 2, 3]])
kinds = {
    "numbers": numbers,
    "texts": tf.sparse.from_dense([["a", ""], ["", "bb"]]),
    "long texts": tf.SparseTensor([[0, 1]], ["x" * 200], [1, 2]),
    "empty": tf.SparseTensor(np.zeros([0, 2], np.int64), np.zeros([0], np.float32), [2, 3]),
    "doubles": tf.sparse.from_dense(np.float64([[0.5], [0.0]])),
    "bools": tf.sparse.from_dense([[True, False]]),
    "half": tf.cast(numbers, tf.bfloat16),
    "three axes": tf.sparse.from_dense(np.arange(8).reshape(2, 2, 2)),
}
for name, sparse in kinds.items():
    show(f"{name}: one", tf.io.serialize_sparse(sparse))
    many = tf.io.serialize_many_sparse(sparse)
    show(f"{name}: many", many)
    show(f"{name}: back", parts(tf.io.deserialize_many_sparse(many, sparse.dtype)))

many = tf.io.serialize_many_sparse(numbers)
show("with a rank", parts(tf.io.deserialize_many_sparse(many, tf.int32, rank=2)))
error("another rank", lambda: tf.io.deserialize_many_sparse(many, tf.int32, rank=1))
show("one of them", parts(tf.io.deserialize_many_sparse(many[1], tf.int32)))
stacked = [tf.io.serialize_sparse(tf.sparse.from_dense(row)) for row in ([1, 0], [0, 5, 6, 7])]
show("of several sizes", parts(tf.io.deserialize_many_sparse(tf.stack(stacked), tf.int32)))
in_dataset = tf.data.Dataset.from_tensor_slices(kinds["numbers"]).map(tf.io.serialize_sparse).batch(2)
show("in a dataset", [parts(tf.io.deserialize_many_sparse(batch, tf.int32)) for batch in in_dataset])
error("another type", lambda: tf.io.deserialize_many_sparse(many, tf.float32))
error("no protos", lambda: tf.io.deserialize_many_sparse(tf.constant([["a", "b", "c"]]), tf.int32))
error("two columns", lambda: tf.io.deserialize_many_sparse(many[:, :2], tf.int32))
error("none at all", lambda: tf.io.deserialize_many_sparse(tf.zeros([0, 3], tf.string), tf.int32))
error("one axis", lambda: tf.io.serialize_many_sparse(tf.sparse.from_dense([1, 0])))
error("a dense tensor", lambda: tf.io.serialize_sparse(tf.constant([1])))
ranks = [tf.io.serialize_sparse(tf.sparse.from_dense(value)) for value in ([1, 0], [[1, 0]])]
error("several ranks", lambda: tf.io.deserialize_many_sparse(tf.stack(ranks), tf.int32))

for name in ("b.txt", "a.txt", "c.csv"):
    pathlib.Path(name).write_text(name)
show("files", sorted(map(os.path.basename, tf.io.match_filenames_once("*.txt").numpy())))
show("of several patterns", sorted(map(os.path.basename, tf.io.match_filenames_once(["*.txt", "c*"]).numpy())))
show("no files", tf.io.match_filenames_once("nothing*"))
names = tf.data.Dataset.from_tensor_slices(tf.io.match_filenames_once("*.txt")).map(tf.io.read_file)
show("read", sorted(text.numpy() for text in names))
