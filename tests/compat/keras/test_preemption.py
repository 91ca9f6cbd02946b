"""SIGTERM during `fit` with `BackupAndRestore`: what was trained is saved, whatever the program is doing."""

import functools
import os
import signal

import keras
import numpy as np
import pytest

from tfdist_jax._cluster import LOST_EXIT_CODE

PROGRAM = """
import hashlib, os, signal, sys, threading, time, warnings
import numpy as np
warnings.simplefilter("ignore")
import tensorflow as tf

def train(folder, strategy, moment, result):
    told = lambda: os.kill(os.getpid(), signal.SIGTERM)
    is_training = False
    x = np.random.default_rng(0).normal(size=(48, 4)).astype("f4")

    class Slow(tf.keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.drop = tf.keras.layers.Dropout(0.2)
        def call(self, x):
            if moment == "compilation" and is_training:
                # The main thread is in a call that lets no Python run, as while XLA compiles.
                threading.Timer(0.2, told).start()
                hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
            return self.drop(x, training=True)  # In validation, too.

    class Tell(tf.keras.callbacks.Callback):
        steps = 0
        def on_train_begin(self, logs=None):
            nonlocal is_training
            is_training = True
        def on_train_batch_end(self, batch, logs=None):
            self.steps += 1
            if moment == "step" and self.steps == 7:
                told()
        def on_test_batch_end(self, batch, logs=None):
            if moment == "validation" and self.steps == 12:
                told()
            if moment == "validation-again" and self.steps == 0:
                told()
                time.sleep(60)
        def on_epoch_end(self, epoch, logs=None):
            if moment == "callback" and epoch == 1:
                told()
                time.sleep(3600)  # Longer than a test may take: it must be saved meanwhile.
            if moment == "end" and epoch == 3:
                told()

    def batches():
        for i in range(0, 48, 8):
            if moment == "data" and is_training and i == 16:
                told()
                time.sleep(3600)  # Longer than a test may take: it must be saved meanwhile.
            yield x[i : i + 8], x[i : i + 8, :1]

    tf.keras.utils.set_random_seed(3)
    # An epoch has six steps.
    optimizer = tf.keras.optimizers.Adam(gradient_accumulation_steps=4 if strategy == "accumulating" else None)
    strategy = tf.distribute.get_strategy() if strategy == "none" else tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((4,)), Slow(), tf.keras.layers.Dense(8), tf.keras.layers.BatchNormalization(),
                                     tf.keras.layers.Dense(1)])
        model.compile(optimizer, "mse", metrics=["mae"])
    data = tf.data.Dataset.from_generator(batches, output_signature=(tf.TensorSpec((8, 4)), tf.TensorSpec((8, 1))))
    backup = tf.keras.callbacks.BackupAndRestore(folder, delete_checkpoint=False)
    if moment == "alone":
        told()
        told = lambda: None
    # Nothing is ever so much better: the rate gets smaller in each epoch, and the fourth one is the last.
    stopping = tf.keras.callbacks.EarlyStopping(min_delta=100, patience=3, restore_best_weights=True)
    plateau = tf.keras.callbacks.ReduceLROnPlateau(min_delta=100, patience=1, factor=0.5)
    schedule = tf.keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9)
    callbacks = [backup, Tell(), stopping, plateau, schedule]
    validation_data = None if moment == "unvalidated" else (x, x[:, :1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        history = model.fit(data, epochs=6, verbose=0, callbacks=callbacks, validation_data=validation_data, validation_batch_size=16)
    values = [v.numpy() for v in model.variables + model.optimizer.variables]
    columns = [history.history[name] for name in sorted(history.history)]
    np.savez(result, *values, epochs=history.epoch, history=np.array(columns).T,
             warnings=[str(warning.message) for warning in caught])
"""


@pytest.fixture(scope="module")
def train(forking):
    """Return `train(folder, strategy, moment, result)`, which trains in a process of its own and returns its exit code."""
    return forking(PROGRAM)


@pytest.fixture(scope="module")
def whole(train, tmp_path_factory):
    """Return `whole(strategy)`: what a training ends with that nobody has disturbed."""
    folder = tmp_path_factory.mktemp("whole")

    @functools.cache
    def values(strategy):
        assert train(folder / f"{strategy}_backup", strategy, "-", folder / f"{strategy}.npz") == 0
        return dict(np.load(folder / f"{strategy}.npz"))

    return values


# After which epochs the training goes on: it has not to do them again.
MOMENTS = {"step": 1, "validation": 1, "data": 0, "compilation": 0, "callback": 1, "end": 4}

REST = [
    *((moment, "mirrored") for moment in ("validation", "callback", "end")),
    ("data", "none"),
    *((moment, "accumulating") for moment in ("step", "data")),
]


def assert_ends_like(path, whole, *, after):
    """Check that a training that has begun after some epochs has ended like one that nobody has disturbed."""
    with np.load(path) as resumed:
        assert resumed["epochs"].tolist() == [0, 1, 2, 3][after:]
        if after < 4:
            np.testing.assert_array_equal(resumed["history"], whole["history"][after:])
        for name in set(whole) - {"epochs", "history", "warnings"}:
            np.testing.assert_array_equal(resumed[name], whole[name], err_msg=name)


@pytest.mark.one_in(4)
@pytest.mark.slow("two trainings, and one for all")
@pytest.mark.parametrize(
    ("moment", "strategy"),
    [
        *((moment, "mirrored") for moment in ("step", "data", "compilation")),
        ("validation", "accumulating"),
        *(pytest.param(*rest, marks=pytest.mark.exhaustive) for rest in REST),
    ],
)
def test_training_is_saved_whatever_it_is_doing(moment, strategy, train, whole, tmp_path):
    assert train(tmp_path / "backup", strategy, moment, tmp_path / "stopped.npz") == LOST_EXIT_CODE
    assert not (tmp_path / "stopped.npz").exists()
    assert train(tmp_path / "backup", strategy, "-", tmp_path / "resumed.npz") == 0
    assert_ends_like(tmp_path / "resumed.npz", whole(strategy), after=MOMENTS[moment])


@pytest.mark.exhaustive
@pytest.mark.parametrize("strategy", ["mirrored", "none"])
def test_a_validation_that_is_interrupted_twice_is_done_in_the_end(strategy, train, whole, tmp_path):
    for moment in ("validation", "validation-again"):
        assert train(tmp_path / "backup", strategy, moment, tmp_path / "stopped.npz") == LOST_EXIT_CODE
    assert not (tmp_path / "stopped.npz").exists()
    assert train(tmp_path / "backup", strategy, "-", tmp_path / "resumed.npz") == 0
    assert_ends_like(tmp_path / "resumed.npz", whole(strategy), after=1)


@pytest.mark.slow("two trainings")
def test_an_epoch_whose_validation_is_interrupted_ends_without_if_there_is_none_any_more(train, tmp_path):
    assert train(tmp_path / "backup", "none", "validation", tmp_path / "stopped.npz") == LOST_EXIT_CODE
    assert train(tmp_path / "backup", "none", "unvalidated", tmp_path / "resumed.npz") == 0
    with np.load(tmp_path / "resumed.npz") as resumed:
        assert resumed["epochs"].tolist() == [1, 2, 3, 4, 5]
        assert sum("no data to validate with" in text for text in resumed["warnings"]) == 1


def test_sigterm_ends_a_process_that_has_nothing_to_save(train, tmp_path):
    assert train(tmp_path / "backup", "mirrored", "alone", tmp_path / "result.npz") == -signal.SIGTERM


def fit(folder, *callbacks):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    backup = keras.callbacks.BackupAndRestore(folder, delete_checkpoint=False)
    model.fit(np.ones((8, 2), "f4"), np.ones((8, 1), "f4"), batch_size=4, verbose=0, callbacks=[backup, *callbacks])


def test_a_program_that_handles_sigterm_itself_is_left_alone(tmp_path):
    told = []
    tell = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs=None: os.kill(os.getpid(), signal.SIGTERM)
    )
    before = signal.signal(signal.SIGTERM, lambda *_: told.append(1))
    try:
        fit(tmp_path, tell)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert told == [1, 1]


@pytest.mark.parametrize("fails", [False, True])
def test_sigterm_is_given_back_after_fit(fails, tmp_path):
    seen = []

    def look(batch, logs=None):
        seen.append(signal.getsignal(signal.SIGTERM))
        if fails:
            raise KeyError("a callback fails")

    looks = keras.callbacks.LambdaCallback(on_train_batch_end=look)
    if fails:
        with pytest.raises(KeyError, match="a callback fails"):
            fit(tmp_path, looks)
    else:
        fit(tmp_path, looks)
    assert callable(seen[0])
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
