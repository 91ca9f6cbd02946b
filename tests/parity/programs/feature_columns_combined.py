"""Feature columns made of several features, and those that have vectors: crosses, weights, embeddings."""

import numpy as np
import tensorflow as tf
from _columns import Features, State, show_column, show_ids, vectors
from _facts import error, show

fc = tf.feature_column
features = {
    "age": [23.0, 31.0, 40.0, 65.0],
    "pair": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]],
    "color": ["red", "", "green", "pink"],
    "number": np.array([3, -1, 0, 9], "int64"),
    "words": [["a", "b"], ["", "c"], ["d", ""], ["", ""]],
    "word_weights": [[1.0, 2.0], [0.0, 0.25], [3.0, 0.0], [0.0, 0.0]],
    "tags": tf.SparseTensor([[0, 0], [0, 1], [2, 0]], ["a", "z", "b"], [4, 2]),
    "codes": tf.SparseTensor([[0, 0], [0, 1], [2, 0]], np.array([1, 0, 2], "int64"), [4, 2]),
    "weights": tf.SparseTensor([[0, 0], [0, 1], [2, 0]], [0.5, 2.0, -1.0], [4, 2]),
    "whole_weights": tf.SparseTensor([[0, 0], [0, 1], [2, 0]], np.array([1, 2, 3], "int64"), [4, 2]),
}
ages = fc.bucketized_column(fc.numeric_column("age"), [30, 40, 65])
pairs = fc.bucketized_column(fc.numeric_column("pair", shape=2), [2.0, 5.0])
colors = fc.categorical_column_with_vocabulary_list("color", ["red", "green"])
numbers = fc.categorical_column_with_identity("number", 10)
words = fc.categorical_column_with_hash_bucket("words", 10)
tags = fc.categorical_column_with_vocabulary_list("tags", ["a", "b"])
codes = fc.categorical_column_with_identity("codes", 3)

ages_colors = fc.crossed_column([ages, "color"], 1000)
for column in (
    ages_colors,
    fc.crossed_column(["color", "words"], 100),
    fc.crossed_column(["words", "color"], 100, hash_key=5),
    fc.crossed_column(["color", "tags", "number"], 50),
    fc.crossed_column([tags, "words"], 77),
    fc.crossed_column([colors, numbers, pairs], 10_000),
    fc.crossed_column([ages_colors, "words", numbers], 33, hash_key=7),
):
    show_column(column)
    show_ids("ids", column, features)
show("indicator of a cross", vectors(fc.indicator_column(fc.crossed_column(["color", "words"], 5)), features))

by_weight = fc.weighted_categorical_column(codes, "weights")
for column in (
    by_weight,
    fc.weighted_categorical_column(codes, "whole_weights", dtype=tf.int64),
    fc.weighted_categorical_column(tags, "weights"),
    fc.weighted_categorical_column(words, "word_weights"),
):
    show_column(column)
    show_ids("ids", column, features)
    show("indicator", vectors(fc.indicator_column(column), features))

for combiner in ("mean", "sqrtn", "sum"):
    for column in (
        colors,
        words,
        tags,
        codes,
        pairs,
        ages_colors,
        by_weight,
        fc.weighted_categorical_column(tags, "weights"),
    ):
        show(f"{combiner} of {column.name}", vectors(fc.embedding_column(column, 3, combiner), features))
        show("shortened", vectors(fc.embedding_column(column, 3, combiner, max_norm=0.5), features))

embedding = fc.embedding_column(colors, dimension=4)
show("fields", [field for field in embedding._fields])
show("values", [embedding.dimension, embedding.combiner, embedding.max_norm, embedding.trainable, embedding.name])
show("shape", embedding.variable_shape.as_list())
show("config", {key: value for key, value in embedding.get_config().items() if isinstance(value, int | float | str)})
show("initializer", embedding.get_config()["initializer"]["config"]["stddev"])
first = embedding.initializer([1000, 4], dtype=tf.float32)
show("beyond two deviations", int(tf.reduce_sum(tf.cast(tf.abs(first) > 1.0, tf.int32))))
show("half of it", bool(0.4 < float(tf.math.reduce_std(first)) < 0.48))
error(
    "numbers that are too large",
    lambda: vectors(fc.embedding_column(fc.categorical_column_with_identity("number", 5), 2), features),
)

state = State()
embedding.create_state(state)
table = state.get_variable(embedding, "embedding_weights")
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(embedding.get_dense_tensor(Features(features), state) ** 2)
show("gradient", tf.convert_to_tensor(tape.gradient(loss, table)))
error("weights of another type", lambda: show_ids("", fc.weighted_categorical_column(codes, "whole_weights"), features))
error("a cross of what has weights", lambda: show_ids("", fc.crossed_column([by_weight, "color"], 10), features))
error(
    "vectors of sequences",
    lambda: vectors(fc.embedding_column(fc.sequence_categorical_column_with_identity("codes", 3), 2), features),
)
error(
    "an indicator of sequences",
    lambda: vectors(fc.indicator_column(fc.sequence_categorical_column_with_identity("codes", 3)), features),
)
