"""Checkpoints of Keras models and optimizers in a custom loop."""

import os
import tempfile

import numpy as np
import tensorflow as tf
from _facts import show

folder = tempfile.mkdtemp()
x = np.linspace(-1, 1, 12, dtype="f4").reshape(4, 3)
y = x[:, :1] * 2
strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])


def make():
    model = tf.keras.Sequential([tf.keras.layers.Dense(4, activation="tanh"), tf.keras.layers.Dense(1)])
    return tf.train.Checkpoint(model=model, optimizer=tf.keras.optimizers.SGD(0.1, momentum=0.9), step=tf.Variable(0))


def train(state, steps):
    losses = []
    for _ in range(steps):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(state.model(x) - y))
        variables = state.model.trainable_variables
        state.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        state.step.assign_add(1)
        losses.append(loss)
    return losses


state = make()
state.model.build((None, 3))
rng = np.random.RandomState(0)
state.model.set_weights([rng.normal(size=w.shape).astype("f4") for w in state.model.get_weights()])
show("losses", train(state, 3))
path = state.save(os.path.join(folder, "ckpt"))
expected = train(state, 3)
show("go on", expected)

again = make()
status = again.restore(path)
again.model.build((None, 3))
show("restored later", train(again, 3))
show("step", again.step)
show("iterations", int(again.optimizer.iterations.numpy()))

with strategy.scope():
    mirrored = make()
    mirrored.model.build((None, 3))
    mirrored.restore(path)
show("under a strategy", [w.sum() for w in mirrored.model.get_weights()])
