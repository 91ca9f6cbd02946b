"""Files of models and backups: damage is found, and a full disk costs neither the process nor what was saved before."""

import contextlib
import time
import zipfile
from pathlib import Path

import damages
import h5py
import keras
import numpy as np
import pytest

import tfdist_jax as td
import tfdist_jax.compat.tensorflow as tf

NAMES = ("m.keras", "m.weights.h5", "m.h5")
DATA = np.random.default_rng(0).random((32, 8), "f4")


def make_model():
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(40), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    )
    model.compile("adam", keras.losses.MeanSquaredError())
    return model


def save(model, path):
    model.save_weights(path) if path.name.endswith(".weights.h5") else model.save(path)


def load(path):
    if not path.name.endswith(".weights.h5"):
        return keras.models.load_model(path)
    model = make_model()
    model.optimizer.build(model.trainable_variables)
    model.load_weights(path)
    return model


def assert_equal(one, other):
    for a, b in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture(params=NAMES)
def saved(request, tmp_path):
    model = make_model()
    model.fit(DATA, DATA[:, :1], verbose=0)
    save(model, tmp_path / request.param)
    return tmp_path / request.param, model


@pytest.mark.parametrize("kind", ["flip", "truncate", "empty"])
def test_damage_anywhere_in_a_file_is_found(chaos, saved, kind):
    path, model = saved
    for _ in range({"flip": 70, "truncate": 20, "empty": 1}[kind]):
        with (
            chaos.damage(path, kind),
            pytest.raises(tf.errors.DataLossError, match=r"m\..* is damaged") as raised,
        ):
            load(path)
        assert isinstance(raised.value, OSError) and str(path) in str(raised.value)
    assert_equal(load(path), model)


def test_each_end_of_a_file_is_found_or_harmless(saved):
    """Of the digest itself so little may be left that it is none; then all else is there."""
    path, model = saved
    written, found = path.read_bytes(), 0
    for size in range(len(written) - 80, len(written)):
        path.write_bytes(written[:size])
        try:
            assert_equal(load(path), model)
        except tf.errors.DataLossError:
            found += 1
    assert found >= 76


def test_files_that_others_have_changed_are_read(saved):
    path, model = saved
    if path.suffix == ".keras":
        with zipfile.ZipFile(path, "a") as archive:
            archive.comment = b"mine"
    else:
        with h5py.File(path, "r+") as file:
            file.attrs["mine"] = 1
    assert_equal(load(path), model)


class Stop(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 2:
            raise KeyboardInterrupt


def train(folder, *, stop=False, **options):
    model = make_model()
    backup = keras.callbacks.BackupAndRestore(folder, delete_checkpoint=False, **options)
    with contextlib.suppress(KeyboardInterrupt):
        model.fit(DATA, DATA[:, :1], epochs=5, verbose=0, callbacks=[backup, *[Stop()] * stop])
    return model


@pytest.mark.parametrize("kind", damages.KINDS)
def test_a_training_goes_on_from_the_backup_before_if_it_is_kept(chaos, tmp_path, caplog, kind):
    train(tmp_path / "backup", stop=True, double_checkpoint=True)
    latest = tmp_path / "backup" / "latest.weights.h5"
    chaos.damage(latest, kind)
    resumed = train(tmp_path / "backup", double_checkpoint=True)
    assert f"Going back to {latest}.bkp" in caplog.text
    assert_equal(resumed, train(tmp_path / "undisturbed"))


def test_a_damaged_backup_is_an_error_that_says_what_to_do(chaos, tmp_path, monkeypatch):
    train(tmp_path, stop=True, double_checkpoint=True)
    latest, before = tmp_path / "latest.weights.h5", tmp_path / "latest.weights.h5.bkp"
    chaos.damage(latest, "flip")
    monkeypatch.setenv("TFDIST_SKIP_DAMAGED", "0")
    with pytest.raises(tf.errors.DataLossError, match="TFDIST_SKIP_DAMAGED=0 says not to go back"):
        train(tmp_path)
    before.unlink()
    with pytest.raises(
        tf.errors.DataLossError, match=r"latest.weights.h5 is damaged.*Remove it.*double_checkpoint=True"
    ):
        train(tmp_path)
    latest.unlink()
    assert_equal(train(tmp_path), train(tmp_path / "undisturbed"))


def test_a_full_disk_costs_no_file_and_not_the_process(chaos, saved):
    path, model = saved
    before, size = [w.copy() for w in model.get_weights()], path.stat().st_size
    model.fit(DATA, DATA[:, :1], verbose=0)
    for _ in range(30):
        with chaos.full_disk(up_to=size - 1), pytest.raises(OSError, match="File too large"):
            save(model, path)
        for one, other in zip(load(path).get_weights(), before, strict=True):
            np.testing.assert_array_equal(one, other)
        assert [left.name for left in path.parent.iterdir()] == [path.name]
    save(model, path)
    assert_equal(load(path), model)


def test_a_full_disk_costs_no_backup(chaos, tmp_path):
    train(tmp_path / "backup", stop=True, save_freq=1)
    size = (tmp_path / "backup" / "latest.weights.h5").stat().st_size
    for _ in range(10):
        with chaos.full_disk(up_to=size - 1), pytest.raises(OSError, match="File too large"):
            train(tmp_path / "backup", save_freq=1)
    assert_equal(train(tmp_path / "backup"), train(tmp_path / "undisturbed"))


@pytest.mark.parametrize("kind", ["manager", "checkpointer"])
def test_a_full_disk_costs_no_checkpoint(chaos, tmp_path, kind):
    noise = np.random.default_rng(0).random((300, 300), "f4")
    variable = tf.Variable(noise)
    if kind == "manager":
        manager = tf.train.CheckpointManager(tf.train.Checkpoint(v=variable), tmp_path, 2)
        save = lambda step: manager.save(step)
    else:
        checkpointer = td.Checkpointer(tmp_path)
        save = lambda step: (checkpointer.save(step, {"v": variable.numpy()}), checkpointer.wait())
    save(0)
    for _ in range(30):
        variable.assign_add(noise)
        with chaos.full_disk(up_to=1 << 18), pytest.raises((OSError, RuntimeError, ValueError)):
            save(1)
        restored = tf.train.load_checkpoint(manager.latest_checkpoint) if kind == "manager" else checkpointer.restore()
        step = restored.get_tensor("v/.ATTRIBUTES/VARIABLE_VALUE") if kind == "manager" else restored.state["['v']"]
        np.testing.assert_array_equal(step, noise)
    time.sleep(0.5)  # Orbax's other writers may still be at it.
    save(1)
    names = {path.name for path in Path(tmp_path).iterdir()} - {"checkpoint"}
    assert names == ({"ckpt-0", "ckpt-1"} if kind == "manager" else {"step-0", "step-1"})
