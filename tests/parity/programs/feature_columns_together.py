"""Vectors of many columns side by side: of `tf.keras.layers.DenseFeatures`, or where it is not there any more of a graph's input layer."""

import numpy as np
import tensorflow as tf
from _facts import show

fc = tf.feature_column
ROWS = 300
draw = np.random.RandomState(3)
features = {
    "age": draw.randint(10, 90, ROWS).astype("float32"),
    "values": draw.randn(ROWS, 3).astype("float32"),
    "words": draw.choice(["a", "b", "c", "d", "", "zz"], (ROWS, 4)),
    "numbers": draw.randint(-1, 12, (ROWS, 2)),
    "text": draw.choice(["x", "y", "zebra"], ROWS),
}


def waves(shape, dtype=None, **options):
    count = int(shape[0]) * int(shape[1])
    return tf.reshape(tf.sin(tf.range(count, dtype=tf.float32)), [int(size) for size in shape])


def together(columns):
    if hasattr(tf.keras.layers, "DenseFeatures"):
        return tf.keras.layers.DenseFeatures(columns)(features)
    graphs = getattr(tf.compat, "v1")
    with graphs.Graph().as_default():
        layer = graphs.feature_column.input_layer({key: tf.constant(value) for key, value in features.items()}, columns)
        with graphs.Session() as session:
            session.run([graphs.global_variables_initializer(), graphs.tables_initializer()])
            return session.run(layer)


ages = fc.bucketized_column(fc.numeric_column("age"), [18, 25, 30, 60])
words = fc.categorical_column_with_vocabulary_list("words", ["a", "b", "c"], num_oov_buckets=2)
numbers = fc.categorical_column_with_identity("numbers", 12)
text = fc.categorical_column_with_hash_bucket("text", 7)
found = together(
    [
        ages,
        fc.numeric_column("values", shape=3),
        fc.embedding_column(words, 5, initializer=waves),
        fc.embedding_column(numbers, 3, "sqrtn", initializer=waves, max_norm=1.0),
        fc.indicator_column(text),
        fc.indicator_column(words),
        fc.indicator_column(fc.crossed_column([ages, "text"], 50)),
        fc.embedding_column(fc.crossed_column(["words", "text", numbers], 200, 9), 4, "sum", initializer=waves),
        fc.embedding_column(fc.crossed_column([ages, words], 100), 4, initializer=waves),
    ]
)
array = np.asarray(found)
show("shape", list(array.shape))
show("first", array[0])
show("last", array[-1])
show("means", array.astype("float64").mean(axis=0))
