"""Keras optimizers given indexed slices: rows that are not there, and for SGD and momentum rows that repeat."""

import keras
import tensorflow as tf
from _facts import show

OPTIMIZERS = {
    "SGD": lambda: keras.optimizers.SGD(0.5),
    "SGD momentum": lambda: keras.optimizers.SGD(0.5, momentum=0.9),
    "SGD clipnorm": lambda: keras.optimizers.SGD(0.5, clipnorm=1.0),
    "SGD global_clipnorm": lambda: keras.optimizers.SGD(0.5, global_clipnorm=1.0),
    "SGD clipvalue": lambda: keras.optimizers.SGD(0.5, clipvalue=0.7),
    "SGD weight_decay": lambda: keras.optimizers.SGD(0.5, weight_decay=0.1),
    "Adagrad": lambda: keras.optimizers.Adagrad(0.5),
    "RMSprop": lambda: keras.optimizers.RMSprop(0.5),
    "Adam": lambda: keras.optimizers.Adam(0.5),
}
LINEAR = ("SGD", "SGD momentum", "SGD weight_decay")
for name, make in OPTIMIZERS.items():
    table, optimizer = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), make()
    for ids in ([0, 2, 2] if name in LINEAR else [0, 2], [2, 0]):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids) ** 2)
        gradient = tape.gradient(loss, table)
        optimizer.apply_gradients([(gradient, table)])
    show(name, [isinstance(gradient, tf.IndexedSlices), table])

layer = keras.layers.Embedding(3, 2, embeddings_initializer="ones")
layer.build((None,))
optimizer = keras.optimizers.SGD(0.5)


@tf.function
def step(ids):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(ids) ** 2)
    gradients = tape.gradient(loss, layer.trainable_variables)
    optimizer.apply_gradients(zip(gradients, layer.trainable_variables))
    return loss


show("Embedding", [step(tf.constant([0, 2, 2])), step(tf.constant([1, 1, 1])), layer.trainable_variables[0].numpy()])

strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
with strategy.scope():
    table, optimizer = tf.Variable([[1.0], [2.0], [3.0]]), keras.optimizers.SGD(0.5)


@tf.function
def distributed(batch):
    def replica_step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids) ** 2)
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])
        return loss

    return strategy.reduce("SUM", strategy.run(replica_step, args=(batch,)), axis=None)


data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices([0, 2, 2, 2]).batch(4))
show("replicas", [distributed(next(iter(data))), table])
