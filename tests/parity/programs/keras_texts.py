"""Keras's layers of strings: as layers, in datasets, in models that are trained, saved and loaded."""

import os
import tempfile

import numpy as np
import tensorflow as tf
from _facts import error, show

tf.keras.utils.set_random_seed(0)
layers = tf.keras.layers
words = tf.constant([["a", "b"], ["z", "z"]])
column = tf.constant([["a"], ["bb"]])

show("numbers of strings", layers.StringLookup(vocabulary=["a", "b"])(words))
adapted = layers.StringLookup()
adapted.adapt(tf.constant(["a", "b", "a"]))
show("adapted", adapted(tf.constant(["a", "b", "c"])))
adapted = layers.StringLookup()
adapted.adapt(tf.data.Dataset.from_tensor_slices(["a", "b", "a"]).batch(2))
show("adapted to a dataset", [list(map(str, adapted.get_vocabulary())), adapted(tf.constant(["b", "q"]))])
show("strings of numbers", layers.StringLookup(vocabulary=["a", "b"], invert=True)(tf.constant([1, 0, 2])))
for mode in ("multi_hot", "count"):
    show(mode, layers.StringLookup(vocabulary=["a", "b"], output_mode=mode)(words))
weighted = layers.StringLookup(vocabulary=["a", "b"], idf_weights=[0.5, 0.25], output_mode="tf_idf")
show("weighted", weighted(words))
show("one hot", layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")(tf.constant(["b", "z"])))
show("three for others", layers.StringLookup(vocabulary=["a", "b"], num_oov_indices=3)(words))
show("masked", layers.StringLookup(vocabulary=["a", "b"], mask_token="")(tf.constant([["a", ""]])))
show("numbers", layers.IntegerLookup(vocabulary=[5, 7])(tf.constant([[5, 9], [7, 7]])))
error("no others", lambda: layers.StringLookup(vocabulary=["a"], num_oov_indices=0)(words))

texts = ["the cat sat", "the Dog!"]
sequences = layers.TextVectorization(max_tokens=10, output_sequence_length=4)
sequences.adapt(texts)
show("vocabulary", list(map(str, sequences.get_vocabulary())))
show("sequences", sequences(tf.constant(["the cat", "a dog sat on the mat"])))
for options in ({"output_mode": "tf_idf"}, {"output_mode": "multi_hot", "ngrams": 2}, {"split": "character"}):
    layer = layers.TextVectorization(**options)
    layer.adapt(texts)
    show(str(options), layer(tf.constant(["the cat", "a dog sat"])))
ragged = layers.TextVectorization(ragged=True)
ragged.adapt(texts)
show("ragged", ragged(tf.constant(["the cat", "dog"])).to_list())
own = layers.TextVectorization(standardize=lambda x: tf.strings.regex_replace(x, "[^a-z ]", ""))
own.adapt(texts)
show("of its own", own(tf.constant(["the cat!", "Dog"])))

show("hashed", layers.Hashing(5)(column))
show("hashed numbers", layers.Hashing(5)(tf.constant([[1], [22]])))
show("with salt", layers.Hashing(5, salt=133)(column))
show("crossed", layers.HashedCrossing(5)((tf.constant(["a", "b"]), tf.constant([1, 2]))))
show("one hot of two", layers.HashedCrossing(5, output_mode="one_hot")((tf.constant(["a", "b"]), tf.constant([1, 2]))))
lookup = layers.StringLookup(vocabulary=["a", "b"])
show("in a dataset", list(tf.data.Dataset.from_tensor_slices(["a", "q"]).batch(2).map(lookup).as_numpy_iterator()))
lines = tf.data.Dataset.from_tensor_slices(["the cat", "dog"]).batch(2).map(sequences)
show("sequences in a dataset", list(lines.as_numpy_iterator()))
space = tf.keras.utils.FeatureSpace({"c": "string_categorical", "n": "float_normalized"}, output_mode="concat")
space.adapt(tf.data.Dataset.from_tensor_slices({"c": ["a", "b", "a"], "n": [1.0, 2.0, 3.0]}))
show("features", space({"c": tf.constant(["a", "z"]), "n": tf.constant([1.0, 2.0])}))


def make_head():
    return [layers.Embedding(10, 2, embeddings_initializer="ones"), layers.GlobalAveragePooling1D()]


model = tf.keras.Sequential(
    [tf.keras.Input((1,), dtype=tf.string), sequences, *make_head(), layers.Dense(1, kernel_initializer="ones")]
)
model.compile("sgd", "mse")
show("fit", model.fit(tf.constant([["the cat"], ["dog"]]), np.array([1.0, 0.0]), epochs=2, verbose=0).history)
show("predicted", model.predict(tf.constant([["cat"]]), verbose=0))
show("called", model(tf.constant([["cat"], ["dog sat"]])))

output = layers.Dense(1, kernel_initializer="ones", activation="sigmoid")
model = tf.keras.Sequential([sequences, *make_head(), output])
model.compile("sgd", "binary_crossentropy", metrics=["accuracy"])
dataset = tf.data.Dataset.from_tensor_slices((["the cat", "dog", "sat", "cat"], [1, 0, 1, 0])).batch(3)
show("without an input layer", model.fit(dataset, epochs=2, verbose=0).history)
show("evaluated", model.evaluate(dataset, verbose=0))
show("predicted from a dataset", model.predict(dataset, verbose=0))
show("one batch", model.train_on_batch(tf.constant(["the cat"]), np.array([1.0])))

inner = tf.keras.Sequential([tf.keras.Input((4,)), *make_head(), layers.Dense(1, kernel_initializer="ones")])
inner.compile("sgd", "mse")
inner.fit(sequences(tf.constant(["cat", "dog"])), np.array([1.0, 2.0]), verbose=0)
outer = tf.keras.Sequential([sequences, inner, layers.Activation("sigmoid")])
outer.compile(loss="binary_crossentropy", metrics=["accuracy"])
show(
    "from strings on", outer.evaluate(tf.data.Dataset.from_tensor_slices((["cat", "sat"], [1, 0])).batch(2), verbose=0)
)
path = os.path.join(tempfile.mkdtemp(), "model.keras")
outer.save(path)
show("loaded", tf.keras.models.load_model(path).predict(tf.constant(["cat", "sat"]), verbose=0))

name = tf.keras.Input((1,), dtype=tf.string, name="name")
size = tf.keras.Input((2,), name="size")
hot = layers.StringLookup(vocabulary=["x", "y"], output_mode="one_hot")(name)
joined = layers.Concatenate()([layers.Dense(2, kernel_initializer="ones")(hot), size])
model = tf.keras.Model({"name": name, "size": size}, layers.Dense(1, kernel_initializer="ones")(joined))
model.compile("sgd", "mse")
data = {"name": tf.constant([["x"], ["q"]]), "size": np.ones((2, 2), "float32")}
show("two inputs", model.fit(data, np.ones((2, 1)), verbose=0).history)
show("two inputs predicted", model.predict(data, verbose=0))
