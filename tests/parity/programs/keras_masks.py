"""Masks as attributes of tensors: layers set them, losses and metrics count by them, programs delete them."""

import numpy as np
import tensorflow as tf
from _facts import show

keras = tf.keras
words = np.array([[1, 2, 0], [3, 0, 0], [1, 1, 1], [4, 2, 0]])


class Tagger(keras.Model):
    def __init__(self, deletes):
        super().__init__()
        self.deletes = deletes
        self.embedding = keras.layers.Embedding(5, 4, mask_zero=True, embeddings_initializer="ones")
        kernel = keras.initializers.Constant(np.arange(20).reshape(4, 5) / 20.0)
        self.dense = keras.layers.Dense(5, kernel_initializer=kernel)

    def call(self, x):
        y = self.dense(self.embedding(x))
        if self.deletes:
            try:
                del y._keras_mask
            except AttributeError:
                print("no mask")
        return y


def scalar(labels, logits):
    return tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True))


def elementwise(labels, logits):
    return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)


def hits(labels, logits):
    return tf.reduce_mean(tf.cast(tf.argmax(logits, -1) == tf.cast(labels, tf.int64), tf.float32))


losses = {"scalar": scalar, "elementwise": elementwise, "mean squared": "mse", "built in": keras.losses.Poisson()}
for deletes in True, False:
    for name, loss in losses.items():
        targets = words[..., None] if name in ("mean squared", "built in") else words
        model = Tagger(deletes)
        model.compile("sgd", loss)
        show(f"{name}, deletes {deletes}, fit", model.fit(words, targets, verbose=0).history["loss"][0])
        show(f"{name}, deletes {deletes}, evaluate", model.evaluate(words, targets, verbose=0))
model = Tagger(True)
model.compile("sgd", scalar, metrics=[hits], weighted_metrics=["accuracy"])
show("metrics", model.evaluate(words, words, verbose=0, return_dict=True))

embedding = keras.layers.Embedding(5, 2, mask_zero=True)
y = embedding(words)
show("mask", y._keras_mask)
del y._keras_mask
show("after del", hasattr(y, "_keras_mask"))
try:
    del y._keras_mask
except AttributeError:
    show("again", "AttributeError")
y._keras_mask = tf.constant([[True, False, True]] * 4)
show("set", y._keras_mask)
show("lstm of it", keras.layers.SimpleRNN(1, kernel_initializer="ones")(tf.zeros_like(y)))


@tf.function
def traced(x):
    y = embedding(x)
    found = y._keras_mask
    del y._keras_mask
    return found, hasattr(y, "_keras_mask")


show("traced", traced(words)[0])
