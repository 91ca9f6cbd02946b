"""Feature columns of numbers and categories: what they say of themselves, and make of features."""

import os
import tempfile

import numpy as np
import tensorflow as tf
from _columns import sequences, show_column, show_ids, vectors
from _facts import show

fc = tf.feature_column
features = {
    "age": [23.0, 31.0, 40.0, 65.0],
    "count": np.array([1, 2, 3, 4], "int64"),
    "pair": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]],
    "color": ["red", "", "green", "pink"],
    "number": np.array([3, -1, 0, 9], "int64"),
    "words": [["a", "b"], ["", "c"], ["d", ""], ["", ""]],
    "tags": tf.SparseTensor([[0, 0], [0, 1], [2, 0]], ["a", "z", "b"], [4, 2]),
    "codes": tf.SparseTensor([[0, 0], [0, 1], [2, 0]], np.array([1, 7, 2], "int64"), [4, 2]),
    "steps": tf.SparseTensor([[0, 0], [0, 1], [2, 0]], [1.0, 5.0, 2.0], [4, 2]),
}

age = fc.numeric_column("age")
pair = fc.numeric_column("pair", shape=(2,), default_value=3)
for column in (
    age,
    pair,
    fc.numeric_column("pair", shape=[2], default_value=[1.0, 2.0]),
    fc.numeric_column("count", dtype=tf.int64),
):
    show_column(column)
    show("vectors", vectors(column, features))
show("by a function", vectors(fc.numeric_column("age", normalizer_fn=lambda x: (x - 30) / 2), features))

ages = fc.bucketized_column(age, [30, 40, 65])
pairs = fc.bucketized_column(pair, [2.0, 5.0])
for column in (ages, pairs):
    show_column(column)
    show("vectors", vectors(column, features))
    show_ids("ids", column, features)

folder = tempfile.mkdtemp()
path = os.path.join(folder, "colors.txt")
with open(path, "w") as file:
    file.write("green\nred\nblue\n")
colors = fc.categorical_column_with_vocabulary_list("color", ["red", "green"])
of_file = fc.categorical_column_with_vocabulary_file("color", path)
columns = [
    colors,
    fc.categorical_column_with_vocabulary_list("color", ("red", "green"), default_value=1),
    fc.categorical_column_with_vocabulary_list("color", ["red", "green"], num_oov_buckets=3),
    fc.categorical_column_with_vocabulary_list("number", [3, 9]),
    fc.categorical_column_with_vocabulary_list("number", [3, 4], dtype=tf.int64, num_oov_buckets=2),
    fc.categorical_column_with_vocabulary_list("tags", ["a", "b"]),
    fc.categorical_column_with_identity("number", 5),
    fc.categorical_column_with_identity("number", 5, default_value=4),
    fc.categorical_column_with_identity("codes", 5, default_value=0),
    fc.categorical_column_with_hash_bucket("words", 10),
    fc.categorical_column_with_hash_bucket("tags", 1000),
    fc.categorical_column_with_hash_bucket("number", 10, dtype=tf.int64),
    fc.categorical_column_with_hash_bucket("codes", 100, tf.int32),
]
for column in columns:
    show_column(column)
    show_ids("ids", column, features)
    show("indicator", vectors(fc.indicator_column(column), features))
show("lines", [of_file.name, of_file.vocabulary_size, of_file.num_buckets, of_file.default_value])
show_ids("of lines", of_file, features)
show_ids(
    "of two lines",
    fc.categorical_column_with_vocabulary_file("color", path, vocabulary_size=2, num_oov_buckets=2),
    features,
)
show_ids("with a default", fc.categorical_column_with_vocabulary_file("color", path, default_value=0), features)
records = os.path.join(folder, "colors.tfrecord.gz")
for name, values in (("color", ["green", "red", "blue"]), ("number", ["9", "3"])):
    with tf.io.TFRecordWriter(records, "GZIP") as writer:
        for value in values:
            writer.write(value)
    kind = tf.int64 if name == "number" else tf.string
    column = fc.categorical_column_with_vocabulary_file(name, records, dtype=kind)
    show("of records", [int(column.vocabulary_size), column.file_format])
    show_ids("of records", column, features)
    show_ids(
        "of a record", fc.categorical_column_with_vocabulary_file(name, records, 1, kind, num_oov_buckets=2), features
    )
show_column(fc.indicator_column(colors))
show_column(fc.indicator_column(pairs))
show("indicator of intervals", vectors(fc.indicator_column(pairs), features))

tags = fc.sequence_categorical_column_with_vocabulary_list("tags", ["a", "b"])
show_column(tags)
show_ids("sequences", tags, features)
for sequence in (
    fc.sequence_categorical_column_with_hash_bucket("tags", 4),
    fc.sequence_categorical_column_with_identity("codes", 9),
    fc.sequence_categorical_column_with_vocabulary_file("tags", path, num_oov_buckets=2),
):
    show(f"sequences of {sequence.name}", sequences(fc.indicator_column(sequence), features))
show("sequences of embeddings", sequences(fc.embedding_column(tags, 2), features))
for column in (
    fc.sequence_numeric_column("steps"),
    fc.sequence_numeric_column("steps", shape=2, default_value=9.0),
):
    show_column(column)
    show("sequences", sequences(column, features))
