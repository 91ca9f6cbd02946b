"""Cross entropies of Keras's: of probabilities whose logits are known, of what is no probability, of certain ones."""

import warnings

import numpy as np
import tensorflow as tf
from _facts import show

keras = tf.keras
warnings.simplefilter("always")
x = np.array([[1.0, 2.0], [30.0, -40.0], [-60.0, 80.0], [0.0, 0.5]], "float32")
labels = np.array([0, 1, 1, 2])
kernel = np.array([[1.0, -0.5, 0.25], [0.5, 1.0, -2.0]], "float32")


def fitted(activation, loss, targets, units=3):
    initial = keras.initializers.Constant(kernel[:, :units])
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(units, activation, kernel_initializer=initial)])
    model.compile(keras.optimizers.SGD(0.01), loss, metrics=[loss] if isinstance(loss, str) else [])
    history = model.fit(x, targets, batch_size=4, epochs=2, shuffle=False, verbose=0).history
    return [history[name] for name in sorted(history)]


one_hot = np.eye(3, dtype="float32")[labels]
binary = (labels > 0).astype("float32")[:, None]
show("softmax, sparse", fitted("softmax", "sparse_categorical_crossentropy", labels))
show("softmax, one hot", fitted("softmax", "categorical_crossentropy", one_hot))
show("sigmoid, binary", fitted("sigmoid", "binary_crossentropy", binary, 1))
show("no softmax, sparse", fitted(None, "sparse_categorical_crossentropy", labels))
show("no sigmoid, binary", fitted(None, "binary_crossentropy", binary, 1))
show("relu, sparse", fitted("relu", "sparse_categorical_crossentropy", labels))

losses = keras.losses
with warnings.catch_warnings(record=True) as caught:
    show("softmax and from_logits", fitted("softmax", losses.SparseCategoricalCrossentropy(from_logits=True), labels))
    show("sigmoid and from_logits", fitted("sigmoid", losses.BinaryCrossentropy(from_logits=True), binary, 1))
show("warned", any("from_logits=True" in str(warning.message) for warning in caught))

logits = tf.constant(x @ kernel)
for name, probabilities in {
    "keras": keras.activations.softmax(logits),
    "plain": tf.exp(tf.nn.log_softmax(logits)),
}.items():
    show(f"{name}, sparse", losses.sparse_categorical_crossentropy(labels, probabilities))
    show(f"{name}, one hot", losses.categorical_crossentropy(one_hot, probabilities))
show("ignored class", losses.sparse_categorical_crossentropy(labels, keras.activations.softmax(logits), ignore_class=1))
with tf.GradientTape() as tape:
    tape.watch(logits)
    loss = tf.reduce_sum(losses.sparse_categorical_crossentropy(labels, keras.activations.softmax(logits)))
show("gradient", tf.round(tape.gradient(loss, logits) * 1e4) / 1e4)
