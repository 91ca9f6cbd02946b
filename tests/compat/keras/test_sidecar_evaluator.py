"""`SidecarEvaluator`: evaluates checkpoints that another process, here a callback, saves."""

import shutil

import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow._variables import _tracking
from tfdist_jax.compat.tensorflow.keras._legacy import _sidecar_evaluator

X, Y = np.arange(8, dtype="f4").reshape(4, 2), np.ones((4, 1), "f4")
DATA = tf.data.Dataset.from_tensor_slices((X, Y)).batch(2)
SidecarEvaluator = tf.keras.utils.SidecarEvaluator


def make_model(*, is_built=True):
    model = keras.Sequential([*([keras.Input((2,))] if is_built else []), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
    return model


class Evaluations(keras.callbacks.Callback):
    """Keeps the loss and the step of each evaluation, and lets the training go on after it."""

    def __init__(self, go_on=lambda: None):
        super().__init__()
        self.found, self.go_on = [], go_on

    def on_test_end(self, logs=None):
        self.found.append((int(self.model.optimizer.iterations), logs["loss"]))
        self.go_on()


@pytest.fixture
def trained(tmp_path):
    """A model that was saved after two epochs of two steps by `ModelCheckpoint`."""
    model = make_model()
    save = tf.keras.callbacks.ModelCheckpoint(str(tmp_path / "ckpt-{epoch}"), save_weights_only=True)
    model.fit(X, Y, 2, epochs=2, callbacks=[save], verbose=0)
    return model


@pytest.mark.parametrize("is_built", [True, False])
def test_what_model_checkpoint_saves_is_evaluated_at_its_step(trained, tmp_path, is_built):
    evaluations = Evaluations()
    tf.keras.experimental.SidecarEvaluator(
        make_model(is_built=is_built), DATA, tmp_path, max_evaluations=2, callbacks=[evaluations]
    ).start()
    assert evaluations.found == [(4, pytest.approx(trained.evaluate(X, Y, verbose=0)[0], rel=1e-6))]


@pytest.mark.parametrize("form", ["orbax", "tensorflow"])
def test_each_newest_checkpoint_is_evaluated_until_the_last(tmp_path, monkeypatch, form):
    monkeypatch.setenv("TFDIST_CHECKPOINT_FORMAT", form)
    monkeypatch.setattr(_sidecar_evaluator, "wait_for_new_checkpoint", without_pauses)
    model, losses = make_model(), []
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    manager = tf.train.CheckpointManager(checkpoint, tmp_path / "later", max_to_keep=1)

    def train():
        for _ in range(2 if losses else 1):  # Two are saved while the first one is evaluated.
            model.fit(X, Y, 4, verbose=0)
            manager.save()
        losses.append(model.evaluate(X, Y, verbose=0)[0])

    evaluations = Evaluations(train)
    sidecar = SidecarEvaluator(make_model(), DATA, tmp_path / "later", 2, max_evaluations=4, callbacks=evaluations)
    train()
    before = len(_tracking._waiting)
    sidecar.start()
    assert [step for step, _ in evaluations.found] == [1, 3, 5]
    assert [loss for _, loss in evaluations.found] == pytest.approx(losses[:3], rel=1e-6)
    assert len(_tracking._waiting) == before


def without_pauses(folder, known, timeout_s):
    newest = tf.train.latest_checkpoint(folder)
    assert newest != known
    return newest


def test_the_training_is_waited_for_and_what_is_missing_is_told(trained, tmp_path, monkeypatch, caplog):
    begun = []

    def latest(folder, known, timeout_s):
        begun.append(timeout_s)
        return None if len(begun) < 3 else without_pauses(folder, known, timeout_s)

    monkeypatch.setattr(_sidecar_evaluator, "wait_for_new_checkpoint", latest)
    SidecarEvaluator(make_model(), DATA, tmp_path, max_evaluations=1).start()
    told = [record.getMessage() for record in caplog.records if "checkpoint has come to" in record.getMessage()]
    assert len(told) == 2 and str(tmp_path) in told[0] and begun == [60.0] * 3


def test_a_checkpoint_that_is_removed_before_it_is_read_is_passed_over(trained, tmp_path, monkeypatch):
    shutil.copytree(tmp_path / "ckpt-1", tmp_path / "other" / "ckpt-9")
    paths = [str(tmp_path / "other" / "ckpt-9"), str(tmp_path / "ckpt-2")]

    def next_path(folder, known, timeout_s):
        shutil.rmtree(tmp_path / "other", ignore_errors=True)
        return paths.pop(0)

    monkeypatch.setattr(_sidecar_evaluator, "wait_for_new_checkpoint", next_path)
    evaluations = Evaluations()
    SidecarEvaluator(make_model(), DATA, tmp_path, max_evaluations=2, callbacks=[evaluations]).start()
    assert [step for step, _ in evaluations.found] == [4] and not paths


@pytest.mark.parametrize("is_built", [True, False])
def test_checkpoints_of_something_else_are_refused(tmp_path, is_built):
    tf.train.Checkpoint(net=make_model()).save(tmp_path / "ckpt")
    with pytest.raises(RuntimeError, match=r"ckpt-1 has no values for layers/.*ModelCheckpoint"):
        SidecarEvaluator(make_model(is_built=is_built), DATA, tmp_path, max_evaluations=1).start()


def test_the_last_one_is_known_by_its_number(trained, tmp_path):
    trained.save_weights(tmp_path / "final")
    with pytest.raises(ValueError, match=r"must end with a number, as in 'ckpt-1', got .*final"):
        SidecarEvaluator(make_model(), DATA, tmp_path, max_evaluations=1).start()
    for wrong in (0, "3", 2.5):
        with pytest.raises(ValueError, match="positive integer"):
            SidecarEvaluator(make_model(), DATA, tmp_path, max_evaluations=wrong)
