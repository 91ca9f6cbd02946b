"""Interrupt a custom loop, `fit` and a native program at random times; prints what was found, as JSON.

Argument: how often each is interrupted.
"""

import collections
import json
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import tensorflow as tf
from interrupting import make_loop

import tfdist_jax as td
from tfdist_jax.testing import Chaos

times = int(sys.argv[1])
strategy = tf.distribute.MirroredStrategy()
chaos = Chaos(0, Path())
x, y = np.ones((64, 4), np.float32), np.zeros((64, 1), np.float32)


def interrupt(run, check):
    found = collections.Counter()
    for number in range(times):
        with chaos.interruption(within_s=0.02) as interruption:
            while True:
                run(number)
        found[check() if interruption.place else "not interrupted"] += 1
    return found


def loop():
    step, check = make_loop(strategy)
    return lambda number: step(), check


def fit():
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
        return "whole" if weights == {-float(steps)} and int(model.optimizer.iterations) == steps + 4 else "torn"

    return run, check


def native():
    mirrored = td.Mirrored()

    @mirrored.jit
    def step(state, x):
        return {"w": state["w"] + x, "n": state["n"] + 1}, state["n"]

    state = mirrored.init(lambda: {"w": jnp.zeros(1000), "n": jnp.zeros((), jnp.int32)})
    one = jnp.ones(())

    def run(number):
        nonlocal state
        state, _ = step(state, one)

    return run, lambda: "whole" if set(np.asarray(state["w"]).tolist()) == {float(state["n"])} else "torn"


print(json.dumps({make.__name__: interrupt(*make()) for make in (loop, fit, native)}))
