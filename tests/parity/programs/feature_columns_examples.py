"""Feature columns: what they read of serialized examples, and their errors."""

import numpy as np
import tensorflow as tf
from _columns import show_ids, vectors
from _facts import error, show

fc = tf.feature_column
price = fc.numeric_column("price", default_value=0.0)
size = fc.numeric_column("size", shape=(2,), dtype=tf.int64, default_value=[1, 2])
kinds = fc.categorical_column_with_vocabulary_list("kinds", ["cat", "dog"], num_oov_buckets=1)
codes = fc.categorical_column_with_identity("codes", 10)
weighted = fc.weighted_categorical_column(kinds, "weights")
columns = [
    fc.bucketized_column(price, [1.0, 2.0]),
    size,
    fc.embedding_column(kinds, 2),
    fc.indicator_column(weighted),
    fc.indicator_column(codes),
    fc.crossed_column([kinds, "color"], 20),
    fc.sequence_numeric_column("track"),
]
spec = fc.make_parse_example_spec(columns)
show("spec", repr(sorted(spec.items())))


def example(price, kinds, weights, codes, color):
    feature = {
        "kinds": tf.train.Feature(bytes_list=tf.train.BytesList(value=kinds)),
        "weights": tf.train.Feature(float_list=tf.train.FloatList(value=weights)),
        "codes": tf.train.Feature(int64_list=tf.train.Int64List(value=codes)),
        "color": tf.train.Feature(bytes_list=tf.train.BytesList(value=color)),
    }
    if price is not None:
        feature["price"] = tf.train.Feature(float_list=tf.train.FloatList(value=[price]))
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


examples = [
    example(1.5, [b"cat", b"dog", b"cow"], [1.0, 0.5, 2.0], [1, 2], [b"red"]),
    example(None, [], [], [], []),
    example(2.5, [b"dog"], [3.0], [9], [b"red", b"blue"]),
]
features = tf.io.parse_example(examples, spec)
for column in columns[:5]:
    show(column.name, vectors(column, features))
show_ids("cross", columns[5], features)
show("of nothing", fc.make_parse_example_spec([]))
error("no column", lambda: fc.make_parse_example_spec(["price"]))
error("one feature in two ways", lambda: fc.make_parse_example_spec([price, fc.numeric_column("price", shape=2)]))
error("weights that are categories", lambda: fc.weighted_categorical_column(kinds, "kinds").parse_example_spec)

number, text = fc.numeric_column("x"), fc.categorical_column_with_vocabulary_list("t", ["a"])
error("a shape that is none", lambda: fc.numeric_column("x", shape=(1.5,)))
error("an empty axis", lambda: fc.numeric_column("x", shape=(0,)))
error("a type of texts", lambda: fc.numeric_column("x", dtype=tf.string))
error("a default of another shape", lambda: fc.numeric_column("x", shape=(2,), default_value=[1.0]))
error("a default of another type", lambda: fc.numeric_column("x", default_value="a"))
error("a default with a fraction", lambda: fc.numeric_column("x", default_value=1.5, dtype=tf.int32))
error("a function that is none", lambda: fc.numeric_column("x", normalizer_fn="log"))
error("a key that is none", lambda: fc.numeric_column(3))
error("intervals of texts", lambda: fc.bucketized_column(text, [1]))
error("no boundaries", lambda: fc.bucketized_column(number, []))
error("boundaries that fall", lambda: fc.bucketized_column(number, [2, 1]))
error("equal boundaries", lambda: fc.bucketized_column(number, [1, 1]))
error("one boundary", lambda: fc.bucketized_column(number, 3))
error("a matrix of numbers", lambda: fc.bucketized_column(fc.numeric_column("x", shape=(2, 2)), [1]))
error("no buckets", lambda: fc.categorical_column_with_hash_bucket("t", 0))
error("buckets not said", lambda: fc.categorical_column_with_hash_bucket("t", None))
error("hashes of floats", lambda: fc.categorical_column_with_hash_bucket("t", 5, tf.float32))
error("no identities", lambda: fc.categorical_column_with_identity("t", 0))
error("a default outside", lambda: fc.categorical_column_with_identity("t", 3, default_value=3))
error("a negative default", lambda: fc.categorical_column_with_identity("t", 3, default_value=-1))
error("an empty list", lambda: fc.categorical_column_with_vocabulary_list("t", []))
error("a value twice", lambda: fc.categorical_column_with_vocabulary_list("t", ["a", "a"]))
error("both", lambda: fc.categorical_column_with_vocabulary_list("t", ["a"], default_value=0, num_oov_buckets=1))
error("fewer than none", lambda: fc.categorical_column_with_vocabulary_list("t", ["a"], num_oov_buckets=-1))
error("texts as integers", lambda: fc.categorical_column_with_vocabulary_list("t", ["a"], dtype=tf.int64))
error("a list of floats", lambda: fc.categorical_column_with_vocabulary_list("t", [1.5]))
error("no file", lambda: fc.categorical_column_with_vocabulary_file("t", "/nowhere/to/be/found.txt"))
error("no name of a file", lambda: fc.categorical_column_with_vocabulary_file("t", ""))
error("no lines", lambda: fc.categorical_column_with_vocabulary_file("t", "/nowhere/v.txt", vocabulary_size=0))
error(
    "a file that is read later",
    lambda: show_ids(
        "", fc.categorical_column_with_vocabulary_file("t", "/nowhere/v.txt", vocabulary_size=2), {"t": ["a"]}
    ),
)
error("no key", lambda: fc.crossed_column([], 10))
error("one key", lambda: fc.crossed_column(["a"], 10))
error("no crosses", lambda: fc.crossed_column(["a", "b"], 0))
error("a cross of numbers", lambda: fc.crossed_column(["a", number], 10))
error("a cross of hashes", lambda: fc.crossed_column(["a", fc.categorical_column_with_hash_bucket("t", 5)], 10))
error("an indicator of numbers", lambda: fc.indicator_column(number))
error("no dimension", lambda: fc.embedding_column(text, 0))
error("dimension not said", lambda: fc.embedding_column(text, None))
error("an initializer that is none", lambda: fc.embedding_column(text, 2, initializer="zeros"))
error("a checkpoint without a name", lambda: fc.embedding_column(text, 2, ckpt_to_load_from="x"))
error("weights of texts", lambda: fc.weighted_categorical_column(text, "w", dtype=tf.string))
error("shared", lambda: getattr(fc, "shared_" + "embeddings")([text, text], 2))  # Always an error outside of graphs.
error("sequences of floats", lambda: fc.sequence_numeric_column("x", shape=[1.5]))
error("sequences by no function", lambda: fc.sequence_numeric_column("x", normalizer_fn=3))
error("integers for texts", lambda: show_ids("", text, {"t": np.array([1, 2])}))
error("floats for integers", lambda: show_ids("", fc.categorical_column_with_identity("t", 3), {"t": [1.5]}))
error(
    "texts for integers", lambda: show_ids("", fc.categorical_column_with_hash_bucket("t", 3, tf.int64), {"t": ["a"]})
)
error("sparse numbers", lambda: vectors(number, {"x": tf.SparseTensor([[0, 0]], [1.0], [1, 1])}))
