"""Interrupt a loop's step, a native step, an optimizer and iterators at all their places; prints what was found, as JSON.

Argument: every how manyth place of an iterator is tried.
"""

import collections
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf
from interrupting import make_loop

import tfdist_jax as td
from tfdist_jax.testing import interruptions

strategy = tf.distribute.MirroredStrategy()
found = {}


def interrupt(action, check, step=1):
    """Count what is found after an interruption at each place."""
    results = collections.Counter()
    for interruption in interruptions(step):
        with interruption:
            action()
        results[check()] += 1
    return results


def interrupt_loop():
    step, check = make_loop(strategy)
    for _ in range(3):
        step()
    found["loop"] = interrupt(step, check)


def interrupt_checked_loop():
    value, count = tf.Variable(0.0), tf.Variable(0.0)

    @tf.function
    def step():
        value.assign_add(1.0)
        tf.debugging.assert_less(value, 1e6)
        count.assign_add(1.0)

    step()
    found["checked"] = interrupt(step, lambda: "whole" if float(value) == float(count) else "torn")


def interrupt_native():
    native = td.Mirrored()

    @native.jit
    def step(state, x):
        return {"w": state["w"] + x, "n": state["n"] + 1, "key": state["key"]}, state["n"]

    state = native.init(lambda: {"w": jnp.zeros(1000), "n": jnp.zeros((), jnp.int32), "key": jax.random.key(0)})
    one = jnp.ones(())

    def take_step():
        nonlocal state
        state, _ = step(state, one)

    def check():
        jax.random.normal(state["key"])
        return "whole" if set(np.asarray(state["w"]).tolist()) == {float(state["n"])} else "torn"

    for _ in range(3):
        take_step()
    found["native"] = interrupt(take_step, check)


def interrupt_optimizer():
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(4), tf.keras.layers.Dense(1)])
        optimizer = tf.keras.optimizers.SGD(1.0, momentum=0.999)  # No momentum comes to rest soon.
    gradients = [tf.ones(v.shape) for v in model.trainable_variables]
    apply = lambda: optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    read = lambda: [v.numpy() for v in [*model.trainable_variables, optimizer.iterations, *optimizer.momentums]]
    apply()
    before = read()

    def check():
        nonlocal before
        now = read()
        changed = {bool((a != b).any()) for a, b in zip(before, now, strict=True)}
        before = now
        return "whole" if len(changed) == 1 else "torn"

    found["optimizer"] = interrupt(apply, check, step=97)


def interrupt_iterators():
    numbers = tf.data.Dataset.range(12)

    def generate():
        yield from range(12)

    datasets = {
        "shuffle, map, batch, prefetch": numbers.shuffle(5, seed=1).map(lambda x: x + 0).batch(1).prefetch(1),
        "generator": tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec((), tf.int64)),
        "filter": numbers.filter(lambda x: x >= 0),
        "cache": numbers.cache(),
        "distributed": strategy.experimental_distribute_dataset(numbers.batch(1)),
    }
    for name, dataset in datasets.items():
        own = lambda element: int(np.ravel(strategy.experimental_local_results(element)[0])[0])
        results = collections.Counter()
        for interruption in interruptions(int(sys.argv[1])):
            iterator, got = iter(dataset), []
            got += [next(iterator) for _ in range(3)]
            with interruption:
                got.append(next(iterator))
            got = list(map(own, [*got, *iterator]))
            # One may have been handed over where nobody could take it any more, as from any iterator of Python's.
            result = {12: "all", 11: "all but the one on its way"}.get(len(set(got)), "lost")
            results["twice" if len(set(got)) != len(got) else result] += 1
        found[name] = results


for part in (interrupt_loop, interrupt_checked_loop, interrupt_native, interrupt_optimizer, interrupt_iterators):
    part()
print(json.dumps(found))
