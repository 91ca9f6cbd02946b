"""Interrupt a custom loop, `fit` and a native program at random times; prints what was found, as JSON.

Argument: how often each is interrupted.
"""

import collections
import json
import random
import sys

import jax.numpy as jnp
import numpy as np
import tensorflow as tf
from interrupting import run_until_interrupted

import tfdist_jax as td

times = int(sys.argv[1])
strategy = tf.distribute.MirroredStrategy()
randomness = random.Random(0)
x, y = np.ones((64, 4), np.float32), np.zeros((64, 1), np.float32)


def interrupt(run, check):
    found = collections.Counter()
    for number in range(times):
        run_until_interrupted(lambda number=number: run(number), randomness.uniform(0.001, 0.02))
        found["whole" if check() else "torn"] += 1
    return found


def make_loop():
    with strategy.scope():
        values, count = tf.Variable(tf.zeros((1000,))), tf.Variable(0)

    @tf.function
    def step():
        strategy.run(lambda: values.assign_add(tf.ones((1000,))))
        count.assign_add(1)

    step()
    return lambda number: step(), lambda: set(values.numpy().tolist()) == {float(count.numpy())}


def make_fit():
    """With a gradient of 1 and a rate of 1 the weights are the number of steps."""
    with strategy.scope():
        kernel = tf.keras.layers.Dense(1, kernel_initializer="zeros", use_bias=False)
        model = tf.keras.Sequential([tf.keras.Input((4,)), kernel])
        model.compile(tf.keras.optimizers.SGD(1.0), lambda true, found: tf.reduce_mean(found, axis=-1), metrics=["mae"])
    model.fit(x, y, verbose=0, batch_size=16)
    listener = tf.keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None)

    def run(number):
        if number % 3 < 2:
            model.fit(x, y, epochs=100, verbose=0, batch_size=16, callbacks=[listener][: number % 3])
        else:
            model.train_on_batch(x, y)
            model.evaluate(x, y, verbose=0)
            model.predict(x, verbose=0)

    def check():
        steps = int(model.optimizer.iterations)
        weights = set(model.get_weights()[0].ravel().tolist())
        model.fit(x, y, verbose=0, batch_size=16)
        model.evaluate(x, y, verbose=0)
        return weights == {-float(steps)} and int(model.optimizer.iterations) == steps + 4

    return run, check


def make_native():
    native = td.Mirrored()

    @native.jit
    def step(state, x):
        return {"w": state["w"] + x, "n": state["n"] + 1}, state["n"]

    state = native.init(lambda: {"w": jnp.zeros(1000), "n": jnp.zeros((), jnp.int32)})
    one = jnp.ones(())

    def run(number):
        nonlocal state
        state, _ = step(state, one)

    return run, lambda: set(np.asarray(state["w"]).tolist()) == {float(state["n"])}


print(json.dumps({make.__name__: interrupt(*make()) for make in (make_loop, make_fit, make_native)}))
