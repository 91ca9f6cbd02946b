"""Ids and labels out of range: refused by calls, by fit, evaluate and predict, whatever way they take through a model."""

import numpy as np
import tensorflow as tf
from _facts import error, show

keras = tf.keras
layers = keras.layers
good = np.array([[0, 1], [2, 1], [1, 1], [2, 2], [0, 0], [1, 0]])
bad = good.copy()
bad[3, 1] = 7
targets = np.ones((6, 1), "float32")


def embedded(**kwargs):
    parts = [
        layers.Embedding(3, 2, embeddings_initializer="ones"),
        layers.Flatten(),
        layers.Dense(1, kernel_initializer="ones"),
    ]
    return compiled(keras.Sequential(parts), "mse", **kwargs)


def compiled(model, loss="mse", **kwargs):
    model.compile(keras.optimizers.SGD(0.01), loss, **kwargs)
    return model


def columns():
    """One embedding for each column: 3 users, 8 films."""
    pairs = keras.Input((2,), dtype="int32")
    user = layers.Embedding(3, 2, embeddings_initializer="ones")(pairs[:, 0])
    film = layers.Embedding(8, 2, embeddings_initializer="ones")(pairs[:, 1])
    return compiled(keras.Model(pairs, layers.Dot(1)([user, film])))


def classifier(loss=None):
    parts = [keras.Input((2,)), layers.Dense(3, "softmax", kernel_initializer="ones")]
    return compiled(keras.Sequential(parts), loss or "sparse_categorical_crossentropy")


embedding = layers.Embedding(3, 2, embeddings_initializer="ones")
error("call", lambda: embedding(tf.constant([3])))
show("call from the end", embedding(tf.constant([-1])))
error("call before the start", lambda: embedding(tf.constant([-4])))
error("label", lambda: keras.losses.sparse_categorical_crossentropy(tf.constant([3]), tf.constant([[0.1, 0.2, 0.7]])))
error(
    "label below zero",
    lambda: keras.losses.sparse_categorical_crossentropy(tf.constant([-1]), tf.constant([[0.1, 0.2, 0.7]])),
)

model = embedded()
error("fit", lambda: model.fit(bad, targets, batch_size=2, shuffle=False, verbose=0))
show("weights of it are finite", bool(np.isfinite(model.get_weights()[0]).all()))
error("fit with floats", lambda: embedded().fit(bad.astype("float32"), targets, verbose=0))
dataset = tf.data.Dataset.from_tensor_slices((bad, targets)).batch(4)
error("fit on a dataset", lambda: embedded().fit(dataset, verbose=0))
error("evaluate", lambda: embedded().evaluate(bad, targets, verbose=0))
error("predict", lambda: embedded().predict(bad, verbose=0))
error("train_on_batch", lambda: embedded().train_on_batch(bad, targets))
error("eagerly", lambda: embedded(run_eagerly=True).fit(bad, targets, verbose=0))
show("good", embedded().evaluate(good, targets, verbose=0))

show("columns", columns().predict(bad, verbose=0))
show("columns, fit", columns().fit(bad, targets, batch_size=6, verbose=0).history["loss"])
error("columns the other way", lambda: columns().fit(bad[:, ::-1], targets, verbose=0))

error("fit of labels", lambda: classifier().fit(good, np.array([0, 1, 2, 3, 0, 1]), verbose=0))
error("fit of labels from one", lambda: classifier().fit(good, np.array([[1], [2], [3], [1], [2], [3]]), verbose=0))
error("evaluate labels", lambda: classifier().evaluate(good, np.array([0, 1, -1, 2, 0, 1]), verbose=0))
ignoring = keras.losses.SparseCategoricalCrossentropy(ignore_class=-1)
show("an ignored class", classifier(ignoring).evaluate(good, np.array([0, 1, -1, 2, 0, 1]), verbose=0))
error("beside an ignored class", lambda: classifier(ignoring).fit(good, np.array([0, 1, -1, 3, 0, 1]), verbose=0))


def reached(way):
    """An embedding of three ids, which are made of a batch's numbers."""

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.parts = [
                layers.Embedding(3, 2, embeddings_initializer="ones"),
                layers.Flatten(),
                layers.Dense(1, kernel_initializer="ones"),
            ]

        def embedded(self, ids):
            for part in self.parts:
                ids = part(ids)
            return ids

        def call(self, numbers):
            return way(self, numbers)

    return compiled(Model())


truths = reached(lambda model, ids: model.embedded(tf.cast(tf.cast(ids, tf.bool), tf.int32)))
show("ids that were truths", truths.predict(bad, verbose=0))
wrapped = reached(lambda model, ids: model.embedded(tf.cast(tf.cast(ids + 256, tf.uint8), tf.int32)))
show("ids that went round", wrapped.predict(good, verbose=0))
known = reached(
    lambda model, ids: tf.cond(tf.reduce_max(ids) < 3, lambda: model.embedded(ids), lambda: model.embedded(ids % 3) * 2)
)
show("ids of a branch", known.predict(bad, verbose=0))
labels, weights = np.array([0, 1, -1, 2, 0, 1]), np.array([1, 1, 0, 1, 1, 1])
error("a label without weight", lambda: classifier().fit(good, labels, sample_weight=weights, verbose=0))

strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(4)])
with strategy.scope():
    replicated, divided = embedded(), columns()
show("replicas, columns", divided.fit(bad[:4], targets[:4], batch_size=4, shuffle=False, verbose=0).history["loss"])
error("replicas", lambda: replicated.fit(bad, targets, batch_size=6, verbose=0))
error("replicas, labels", lambda: divided.fit(bad[:, ::-1], targets, batch_size=4, shuffle=False, verbose=0))

with strategy.scope():
    offset = compiled(
        keras.Sequential(
            [
                layers.Lambda(lambda ids: ids - 100),
                layers.Embedding(3, 2, embeddings_initializer="ones"),
                layers.Flatten(),
                layers.Dense(1, kernel_initializer="ones"),
            ]
        )
    )
    counted_from_one = classifier(lambda y, p: keras.losses.sparse_categorical_crossentropy(y - 1, p))
rows = np.tile(good, (3, 1))[:15]
show("replicas, uneven, ids from 100", offset.predict(rows + 100, batch_size=8, verbose=0))
show("replicas, uneven, labels from one", counted_from_one.evaluate(rows, rows[:, 0] + 1, batch_size=8, verbose=0))
error("replicas, uneven, ids from 101", lambda: offset.predict(rows + 101, batch_size=8, verbose=0))
error(
    "replicas, uneven, labels from two",
    lambda: counted_from_one.evaluate(rows, rows[:, 0] + 2, batch_size=8, verbose=0),
)
