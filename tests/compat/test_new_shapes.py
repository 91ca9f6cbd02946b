"""Eager code compiles nothing at a shape that is new."""

import jax
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax import _interpreter

keras = tf.keras


@pytest.fixture
def compiled():
    """Names of the programs that XLA compiles."""
    _interpreter.install()
    names = []

    def note(event, _, fun_name=None, **__):
        if event.endswith("backend_compile_duration"):
            names.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(note)
    yield names
    jax.monitoring.unregister_event_duration_listener(note)


def make_model(features, *layers):
    model = keras.Sequential([keras.Input((features,)), *layers])
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    return model, optimizer


def keras_step():
    """A step of a classifier, of so many rows."""
    model, optimizer = make_model(8, keras.layers.Dense(16, activation="relu"), keras.layers.Dense(3))
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def step(rows):
        random = np.random.default_rng(rows)
        x, y = random.normal(size=(rows, 8)).astype("f4"), random.integers(0, 3, rows)
        with tf.GradientTape() as tape:
            loss = loss_fn(tf.constant(y), model(tf.constant(x), training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    return step, model.trainable_variables


def reinforce():
    """A step of REINFORCE, of an episode of so many steps."""
    model, optimizer = make_model(4, keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(2))

    def step(steps):
        random = np.random.default_rng(steps)
        states = tf.constant(random.normal(size=(steps, 4)).astype("f4"))
        returns = tf.cumsum(tf.ones(steps), reverse=True)
        returns = (returns - tf.reduce_mean(returns)) / (tf.math.reduce_std(returns) + 1e-6)
        with tf.GradientTape() as tape:
            logits = model(states)
            chosen = tf.one_hot(tf.constant(random.integers(0, 2, steps)), 2) * tf.nn.log_softmax(logits)
            loss = -tf.reduce_sum(tf.reduce_sum(chosen, axis=1) * returns)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    return step, model.trainable_variables


def sentences():
    """Vectors of sentences of so many words, and the gradient of their table."""
    table = tf.Variable(np.random.default_rng(0).normal(size=(50, 6)).astype("f4"))

    def step(words):
        numbers = tf.constant(np.random.default_rng(words).integers(0, 50, words))
        with tf.GradientTape() as tape:
            vectors = tf.gather(table, numbers)
            weights = tf.nn.softmax(tf.reduce_sum(vectors, axis=-1))
            loss = tf.reduce_sum(weights[:, None] * vectors) + tf.reduce_max(tf.concat([vectors, vectors], 0))
        table.assign_sub(0.1 * tf.convert_to_tensor(tape.gradient(loss, table)))

    return step, [table]


@pytest.mark.parametrize("make", [keras_step, reinforce, sentences])
def test_a_new_size_compiles_nothing(compiled, make, monkeypatch):
    monkeypatch.setattr(_interpreter, "CALLS", 1_000_000)
    step, _ = make()
    for size in (5, 6):
        step(size)
    del compiled[:]
    for size in range(20, 26):
        step(size)
    assert compiled == []


@pytest.mark.parametrize("make", [keras_step, reinforce, sentences])
def test_trainings_are_those_that_xla_computes(make):
    def train():
        keras.utils.set_random_seed(1)
        step, variables = make()
        for size in (5, 6, 7, 6, 5):
            step(size)
        return [variable.numpy() for variable in variables]

    _interpreter.install()
    by_numpy = train()
    _interpreter.uninstall()
    try:
        by_xla = train()
    finally:
        _interpreter.install()
    for ours, xlas in zip(by_numpy, by_xla, strict=True):
        np.testing.assert_allclose(ours, xlas, rtol=1e-4, atol=1e-6)
