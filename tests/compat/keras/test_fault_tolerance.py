"""Trainings that are killed go on, and end as if they had not been."""

import contextlib
import os
import random
import signal
import time

import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

KILLS = 10  # Of each kind.
PROGRAM = """
import os, signal, sys, warnings
import numpy as np
warnings.simplefilter("ignore")
import tensorflow as tf

def train(folder, how, result):
    tf.keras.utils.set_random_seed(3)
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    random = np.random.default_rng(0)
    x, y = random.normal(size=(48, 4)).astype("f4"), random.normal(size=(48, 1)).astype("f4")
    latest, done = folder + "/latest.keras", 0
    with strategy.scope():
        if how == "checkpoint" and os.path.exists(latest):
            model = tf.keras.models.load_model(latest)
            done = int(model.optimizer.iterations.numpy()) // 12
        else:
            model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(8), tf.keras.layers.Dropout(0.2),
                                         tf.keras.layers.Dense(1)])
            model.compile("adam", "mse")
    if how == "checkpoint":
        callback = tf.keras.callbacks.ModelCheckpoint(latest)
    else:
        callback = tf.keras.callbacks.BackupAndRestore(folder + "/backup", save_freq=5, delete_checkpoint=False)
    open(folder + "/started", "w").close()
    model.fit(x, y, batch_size=4, epochs=12, initial_epoch=done, shuffle=how == "backup", verbose=0, callbacks=[callback])
    np.savez(result, *[v.numpy() for v in model.variables + model.optimizer.variables])
"""


@pytest.fixture
def train(forking):
    """Return `train(folder, how, result, kill_after=None)`, which trains in a process of its own."""
    train = forking(PROGRAM)

    def run(folder, how, result, kill_after=None):
        folder.mkdir(exist_ok=True)
        (folder / "started").unlink(missing_ok=True)

        def kill(pid):
            while not (folder / "started").exists():
                time.sleep(0.005)
            time.sleep(kill_after)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

        return train(folder, how, result, meanwhile=kill if kill_after is not None else None)

    return run


@pytest.mark.slow("kills ten trainings")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("how", ["backup", pytest.param("checkpoint", marks=pytest.mark.exhaustive)])
def test_training_killed_at_random_moments_ends_as_if_it_had_not_been(how, train, tmp_path):
    assert train(tmp_path / "whole", how, tmp_path / "whole.npz") == 0
    fit_s = (tmp_path / "whole.npz").stat().st_mtime - (tmp_path / "whole" / "started").stat().st_mtime
    moments = random.Random(how)
    codes, attempt = [], 0
    while codes.count(-signal.SIGKILL) < KILLS and attempt < 3 * KILLS:
        folder = tmp_path / f"killed{sum(code == 0 for code in codes)}"
        codes.append(train(folder, how, tmp_path / "killed.npz", kill_after=moments.uniform(0, fit_s)))
        attempt += 1
        if codes[-1] == 0:
            assert_equal(tmp_path / "killed.npz", tmp_path / "whole.npz")
    assert codes.count(-signal.SIGKILL) == KILLS and set(codes) <= {0, -signal.SIGKILL}
    assert train(folder, how, tmp_path / "killed.npz") == 0
    assert_equal(tmp_path / "killed.npz", tmp_path / "whole.npz")


def assert_equal(path, expected):
    with np.load(path) as got, np.load(expected) as wanted:
        assert got.files == wanted.files
        for name in got.files:
            np.testing.assert_array_equal(got[name], wanted[name], err_msg=name)


@pytest.mark.parametrize("harm", ["torn", "old", "lost"])
def test_a_backup_needs_no_second_file(harm, tmp_path):
    """Keras writes the epoch into a file beside the weights: a kill can leave it in any state."""
    x, y = np.ones((8, 2), "f4"), np.ones((8, 1), "f4")
    metadata = tmp_path / "training_metadata.json"

    def fit(epochs):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        backup = keras.callbacks.BackupAndRestore(tmp_path, delete_checkpoint=False)
        return model.fit(x, y, epochs=epochs, verbose=0, callbacks=[backup]).epoch

    assert fit(1) == [0]
    old = metadata.read_text()
    assert fit(2) == [1]
    if harm == "lost":
        metadata.unlink()
    else:
        metadata.write_text("" if harm == "torn" else old)
    assert fit(3) == [2]


class Stop(keras.callbacks.Callback):
    """Ends the training at a batch or at the end of an epoch, counted from 0."""

    def __init__(self, when, number):
        super().__init__()
        self.events, self.when, self.number = 0, when, number

    def _count(self, when):
        self.events += when == self.when
        if self.events > self.number:
            raise KeyboardInterrupt

    def on_train_batch_end(self, batch, logs=None):
        self._count("batch")

    def on_test_begin(self, logs=None):
        self._count("validation")

    def on_epoch_begin(self, epoch, logs=None):
        self._count("epoch")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("save_freq", ["epoch", 2])
def test_callbacks_go_on_counting_where_they_were(save_freq, tmp_path):
    x = np.random.default_rng(0).normal(size=(24, 3)).astype("f4")
    y = x.sum(1, keepdims=True) + np.random.default_rng(1).normal(size=(24, 1)).astype("f4")

    def fit(folder, *more):
        keras.utils.set_random_seed(2)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        # So fast that the loss gets worse again and again.
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
        best = keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", save_best_only=True)
        stopping = keras.callbacks.EarlyStopping(patience=5, restore_best_weights=True)
        plateau = keras.callbacks.ReduceLROnPlateau(patience=2, factor=0.7, cooldown=1)
        backup = keras.callbacks.BackupAndRestore(folder, save_freq=save_freq)
        callbacks = [backup, stopping, plateau, best, *more]
        model.fit(x, y, batch_size=8, epochs=30, validation_data=(x, y), verbose=0, callbacks=callbacks)
        rate = float(model.optimizer.learning_rate)
        return [*model.get_weights(), rate, stopping.best_epoch, stopping.stopped_epoch, plateau.best, best.best]

    expected = fit(tmp_path / "whole")
    rate, last_epoch = expected[2], expected[4]
    assert 15 < last_epoch < 29 and rate < 0.05  # It was stopped early, and its rate was reduced.
    stops = [("epoch", 1), ("validation", 3), ("batch", 4), ("validation", 2), ("epoch", 1), ("batch", 2)]
    for when, number in stops:
        with pytest.raises(KeyboardInterrupt):
            fit(tmp_path / "stopped", Stop(when, number))
    for got, wanted in zip(fit(tmp_path / "stopped"), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("validates", [False, True])
@pytest.mark.parametrize("save_freq", ["epoch", 2])
def test_averaged_weights_and_files_every_few_batches_go_on_where_they_were(save_freq, validates, tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 3)).astype("f4")
    y = x.sum(1, keepdims=True)

    def fit(folder, *more):
        keras.utils.set_random_seed(2)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9), "mse")
        average = keras.callbacks.SwapEMAWeights(swap_on_epoch=not validates)
        files = keras.callbacks.ModelCheckpoint(folder / "{epoch}-{batch}.weights.h5", save_freq=3)
        backup = keras.callbacks.BackupAndRestore(folder / "backup", save_freq=save_freq)
        callbacks = [backup, average, files, *more]
        validation = {"validation_data": (x, y)} if validates else {}
        history = model.fit(x, y, batch_size=8, epochs=6, verbose=0, callbacks=callbacks, **validation).history
        values = [v.numpy() for v in model.variables + model.optimizer.variables]
        return [*values, *(losses[-1] for losses in history.values())]

    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    expected = fit(whole)
    for when, number in [("epoch", 1), ("batch", 7), ("epoch", 1), ("batch", 3)]:
        with pytest.raises(KeyboardInterrupt):
            fit(stopped, Stop(when, number))
    for got, wanted in zip(fit(stopped), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
    assert {path.name for path in stopped.glob("*.h5")} == {path.name for path in whole.glob("*.h5")}


def test_a_training_that_goes_on_says_nothing_about_the_next_one(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = np.ones((8, 2), "f4"), np.ones((8, 1), "f4")

    def fit(folder, *more):
        backup = keras.callbacks.BackupAndRestore(tmp_path / folder, delete_checkpoint=False)
        return model.fit(*data, epochs=3, verbose=0, callbacks=[backup, *more]).epoch

    with pytest.raises(KeyboardInterrupt):
        fit("first", Stop("epoch", 2))
    assert fit("first") == [2]
    assert fit("second") == [0, 1, 2]
    assert model.fit(*data, epochs=1, verbose=0).epoch == [0]


def test_a_training_inside_of_another_one_leaves_its_backup_alone(tmp_path):
    models = [keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]) for _ in range(2)]
    data, done = (np.ones((8, 2), "f4"), np.ones((8, 1), "f4")), []
    for model in models:
        model.compile("sgd", "mse")

    def fit(*more):
        def fit_another(epoch, logs=None):
            models[1].fit(*data, verbose=0, callbacks=[keras.callbacks.BackupAndRestore(tmp_path / "inner")])

        other = keras.callbacks.LambdaCallback(on_epoch_end=fit_another)
        backup = keras.callbacks.BackupAndRestore(tmp_path / "outer", save_freq=1, delete_checkpoint=False)
        count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs=None: done.append(batch))
        models[0].fit(*data, batch_size=2, epochs=3, verbose=0, callbacks=[backup, other, count, *more])

    with pytest.raises(KeyboardInterrupt):
        fit(Stop("batch", 6))
    done.clear()
    fit()
    # The backup is made after the other callbacks.
    assert done == [2, 3, 0, 1, 2, 3]
    assert int(models[0].optimizer.iterations.numpy()) == 12


@pytest.mark.parametrize("kind", ["arrays", "dataset", "endless"])
def test_the_batch_changes_only_between_two_passes_over_the_data(kind, tmp_path):
    x = np.random.default_rng(0).normal(size=(26, 3)).astype("f4")

    def fit(batch, *more, save_freq=2, steps_per_execution=1):
        with tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]).scope():
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
            model.compile("sgd", "mse", steps_per_execution=steps_per_execution)
        options = {
            "epochs": 3,
            "verbose": 0,
            "callbacks": [keras.callbacks.BackupAndRestore(tmp_path, save_freq), *more],
        }
        if kind == "arrays":
            return model.fit(x, x[:, :1], batch_size=batch, **options).epoch
        data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).shuffle(26, seed=1).batch(batch)
        if kind == "dataset":
            return model.fit(data, **options).epoch
        return model.fit(data.repeat(), steps_per_epoch=7, **options).epoch

    with pytest.raises(KeyboardInterrupt):
        fit(4, Stop("batch", 10))
    with pytest.raises(ValueError, match=r"first step had 4 rows; here it has 8. .*same global batch"):
        fit(8)
    with pytest.raises(KeyboardInterrupt):
        fit(4, Stop("batch", 4), steps_per_execution=2)
    assert fit(4) == [2]
    with pytest.raises(KeyboardInterrupt):
        fit(4, Stop("epoch", 1), save_freq="epoch")
    if kind == "endless":  # An epoch's end is in the middle of the data.
        with pytest.raises(ValueError, match="first step had 4 rows"):
            fit(8)
    else:
        assert fit(8) == [1, 2]


class OwnLoop(keras.Sequential):
    """A model whose user makes the function of a step."""

    def make_train_function(self, force=False):
        def step(state, iterator):
            assert next(iterator) is not None
            return {"loss": 0.5}, state

        self.train_function = step


@pytest.mark.parametrize("kind", [keras.Sequential, OwnLoop])
def test_a_training_is_stopped_after_a_batch_that_nobody_knew_to_be_the_last_one(kind, tmp_path):
    def fit(folder, *more):
        keras.utils.set_random_seed(2)
        model = kind([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("adam", "mse")
        batches = ((np.full((4, 2), i, "f4"), np.ones((4, 1), "f4")) for i in range(3))
        backup = keras.callbacks.BackupAndRestore(folder, save_freq=3)
        options = {"validation_data": (np.ones((4, 2)), np.ones((4, 1))), "shuffle": False, "verbose": 0}
        with pytest.warns(UserWarning, match="ran out of data"):
            history = model.fit(batches, callbacks=[backup, *more], **options)
        return history.history, model.get_weights()

    history, weights = fit(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "stopped", Stop("validation", 0))
    resumed_history, resumed_weights = fit(tmp_path / "stopped")
    assert resumed_history == history
    for got, wanted in zip(resumed_weights, weights, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_a_training_that_was_stopped_early_is_not_taken_up_again(tmp_path):
    def fit():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.0), "mse")
        stopping = keras.callbacks.EarlyStopping("loss", patience=2)
        callbacks = [stopping, keras.callbacks.BackupAndRestore(tmp_path, delete_checkpoint=False)]
        return model.fit(np.ones((8, 2)), np.ones((8, 1)), epochs=9, verbose=0, callbacks=callbacks).epoch

    assert fit() == [0, 1, 2]
    assert fit() == []


def test_an_epoch_without_weights_is_not_resumed(tmp_path):
    """A kill while the backup is deleted can leave the epoch alone."""
    (tmp_path / "training_metadata.json").write_text('{"epoch": 2, "batch": 0}')
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    backup = keras.callbacks.BackupAndRestore(tmp_path)
    data = np.ones((8, 2), "f4"), np.ones((8, 1), "f4")
    assert model.fit(*data, epochs=2, verbose=0, callbacks=[backup]).epoch == [0, 1]
