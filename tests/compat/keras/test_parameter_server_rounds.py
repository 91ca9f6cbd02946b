"""Keras's loops under `ParameterServerStrategy` with `backup_workers` or `sync_every`: workers train in rounds."""

import keras
import numpy as np
import pytest
from digits import load_shuffled_digits
from served_strategies import KINDS, make as make, statistics

import tfdist_jax.compat.tensorflow as tf

X = np.linspace(-1, 1, 36 * 6, dtype="f4").reshape(36, 6) ** 3
Y = (X[:, :1] > 0).astype("f4")


def make_model(strategy, model=keras.Sequential, **options):
    keras.utils.set_random_seed(3)
    with strategy.scope():
        layers = [keras.layers.Dense(8, "tanh"), keras.layers.Dense(1, kernel_regularizer="l2")]
        model = model([keras.Input((6,)), *layers])
        model.compile(**{"optimizer": keras.optimizers.Adam(0.02), "loss": "mse", "metrics": ["mae"], **options})
    return model


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "several in a call"])
def test_fit_in_rounds_of_all_workers_is_that_of_larger_batches(make, kind):
    results = []
    for strategy, size in ((make(3, backup_workers=0), 4), (tf.distribute.OneDeviceStrategy("/cpu:0"), 12)):
        options = dict(KINDS[kind])
        if "optimizer" in options:
            options["optimizer"] = options["optimizer"]()
        model = make_model(strategy, **options)
        history = model.fit(X, Y, batch_size=size, epochs=3, shuffle=False, verbose=0, validation_data=(X[:9], Y[:9]))
        results.append((history.history, model.evaluate(X, Y, verbose=0), model.get_weights(), model.optimizer))
    (history, again, weights, optimizer), (expected, expected_again, expected_weights, other) = results
    # The user's step returns what it has seen of the last batch.
    names = [name for name in expected if kind != "the user's step" or name.startswith("val_")]
    for name in names:
        np.testing.assert_allclose(history[name], expected[name], rtol=1e-4)
    np.testing.assert_allclose(again, expected_again, rtol=1e-4)
    for one, another in zip(weights, expected_weights, strict=True):
        np.testing.assert_allclose(one, another, rtol=1e-4, atol=1e-5)
    assert int(optimizer.iterations) == int(other.iterations)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ["Keras's step", "the user's step", "eagerly"])
def test_fit_with_copies_that_meet_after_each_step_is_that_of_larger_batches(make, kind):
    found = []
    for strategy, size in ((make(3, sync_every=1), 4), (tf.distribute.OneDeviceStrategy("/cpu:0"), 12)):
        model = make_model(strategy, optimizer=keras.optimizers.SGD(0.3), **KINDS[kind])
        history = model.fit(X, Y, batch_size=size, epochs=3, shuffle=False, verbose=0, validation_data=(X[:9], Y[:9]))
        found.append((history.history["val_loss"], model.evaluate(X, Y, verbose=0), model.predict(X, verbose=0)))
        assert int(model.optimizer.iterations) == 9
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_several_steps_in_a_call_are_one_of_a_workers_turns(make):
    strategy = make(2, sync_every=2)
    model = make_model(strategy, steps_per_execution=3)
    model.fit(X, Y, batch_size=3, epochs=2, verbose=0)
    told = statistics(strategy)
    assert (told.closures, told.rounds, int(model.optimizer.iterations)) == (8, 2, 12)


def test_a_model_with_copies_goes_on_from_a_checkpoint(make, tmp_path):
    outer = lambda: keras.optimizers.SGD(0.7, momentum=0.9, nesterov=True)
    model = make_model(make(2, sync_every=3, outer_optimizer=outer()))
    model.fit(X, Y, batch_size=6, verbose=0)
    tf.train.Checkpoint(model=model).write(str(tmp_path / "all"))
    again = make_model(make(2, sync_every=3, outer_optimizer=outer()))
    tf.train.Checkpoint(model=again).read(str(tmp_path / "all"))
    for one, other in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert int(again.optimizer.iterations) == 3
    again.fit(X, Y, batch_size=6, verbose=0)
    assert int(again.optimizer.iterations) == 6


def test_an_epochs_last_round_may_have_fewer_steps(make):
    strategy = make(2, backup_workers=0)
    model = make_model(strategy)
    model.fit(X, Y, batch_size=12, epochs=2, verbose=0)
    told = statistics(strategy)
    assert (told.closures, told.rounds, told.dropped, int(model.optimizer.iterations)) == (6, 4, 0, 4)


def test_batches_one_by_one_are_rounds_of_their_own(make):
    model, one = make_model(make(2, backup_workers=0)), make_model(tf.distribute.OneDeviceStrategy("/cpu:0"))
    for _ in range(2):
        found, expected = model.train_on_batch(X[:8], Y[:8]), one.train_on_batch(X[:8], Y[:8])
        np.testing.assert_allclose(found, expected, rtol=2e-5)
    for weights, expected in zip(model.get_weights(), one.get_weights(), strict=True):
        np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=1e-6)


def test_several_steps_in_a_call_are_refused(make):
    model = make_model(make(2, backup_workers=0), steps_per_execution=3)
    with pytest.raises(NotImplementedError, match="steps_per_execution=1"):
        model.fit(X, Y, batch_size=4, verbose=0)


ROUNDS = {
    "all": lambda: {"backup_workers": 0},
    "all but one": lambda: {"backup_workers": 1},
    "local SGD": lambda: {"sync_every": 6},
    "DiLoCo": lambda: {"sync_every": 6, "outer_optimizer": keras.optimizers.SGD(0.7, momentum=0.9, nesterov=True)},
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", ROUNDS)
def test_digits_are_learned_by_four_workers_in_rounds(make, kind):
    strategy = make(4, **ROUNDS[kind]())
    x, y = load_shuffled_digits()
    keras.utils.set_random_seed(0)
    with strategy.scope():
        layers = [keras.layers.Dense(64, "relu"), keras.layers.BatchNormalization(), keras.layers.Dropout(0.1)]
        model = keras.Sequential([keras.Input((64,)), *layers, keras.layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(1e-2), loss, metrics=["accuracy"])
    history = model.fit(x[:1500], y[:1500], batch_size=16, epochs=16, verbose=0, validation_data=(x[1500:], y[1500:]))
    told = statistics(strategy)
    # Of the statistics of BatchNormalization the last worker's stay, by which single epochs vary.
    assert max(history.history["val_accuracy"][-4:]) >= 0.95
    if "all" in kind:
        assert int(model.optimizer.iterations) == told.rounds
    if kind != "all but one":  # 94 batches in an epoch, and in a round 4 or 24.
        assert (told.rounds, told.dropped) == (16 * (24 if kind == "all" else 4), 0)
