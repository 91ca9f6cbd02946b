"""What a process holds while it does the same again and again: `growth.py steps|shapes|strategies|models`.

Prints, a line for each fifth of the work: bytes of live arrays, XLA's programs, Python objects, bytes that are resident.
"""

import gc
import json
import sys
from pathlib import Path

import jax
import numpy as np

import tfdist_jax.compat.tensorflow as tf

random = np.random.RandomState(0)
X, Y = random.rand(64, 20).astype("f4"), random.randint(0, 2, 64)


def make_model(width):
    layers = [tf.keras.layers.Dense(width, activation="relu"), tf.keras.layers.Dense(2)]
    return tf.keras.Sequential([tf.keras.Input((20,)), *layers])


def make_eager_step(choose_rows):
    """A step without tf.function, over as many rows as `choose_rows` says."""
    model, optimizer = make_model(32), tf.keras.optimizers.Adam()

    def step(i):
        rows = choose_rows(i)
        x, y = tf.constant(X[:rows]), tf.constant(Y[:rows])
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=model(x))
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    return step


def use_strategy(_):
    strategy = tf.distribute.MirroredStrategy()
    with strategy.scope():
        total = tf.Variable(np.zeros(200_000, "f4"))

    def add(x):
        total.assign_add(x * tf.ones(200_000))
        return tf.reduce_sum(total)

    add_everywhere = tf.function(lambda x: strategy.run(add, args=(x,)))
    strategy.reduce("sum", add_everywhere(tf.constant(1.0)), axis=None)


def train_model(_):
    with tf.distribute.MirroredStrategy().scope():
        model = make_model(400)
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"])
    model.fit(X, Y, epochs=2, batch_size=32, verbose=0)
    model.evaluate(X, Y, verbose=0)
    model.predict(X, verbose=0)


def measure():
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 if sys.platform == "linux" else 0
    programs = jax.devices()[0].client.live_executables()
    return sum(array.nbytes for array in jax.live_arrays()), len(programs), len(gc.get_objects()), resident


KINDS = {
    "steps": (2000, make_eager_step(lambda i: 32)),
    "shapes": (2000, make_eager_step(lambda i: 20 + i % 10)),
    "strategies": (50, use_strategy),
    "models": (20, train_model),
}

times, work = KINDS[sys.argv[1]]
for i in range(times):
    work(i)
    if (i + 1) % (times // 5) == 0:
        print(json.dumps(measure()), flush=True)
