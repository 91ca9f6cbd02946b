"""`tfdist-jax doctor --checkpoint` says which of the saved files are damaged."""

import json

import damages
import keras
import numpy as np
import pytest

import tfdist_jax as td
import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.cli import main


@pytest.fixture
def saved(tmp_path):
    """A folder with one of everything."""
    array = np.random.default_rng(0).random((50, 50), "f4")
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(v=tf.Variable(array)), tmp_path / "run" / "checkpoints", 2)
    manager.save()
    manager.save()
    with td.Checkpointer(tmp_path / "run" / "native") as checkpointer:
        checkpointer.save(7, {"w": array})
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.save(tmp_path / "m.keras")
    model.save_weights(tmp_path / "m.weights.h5")
    return tmp_path


def examine(path, capsys):
    code = main(["doctor", "--checkpoint", str(path)])
    lines = [line for line in capsys.readouterr().out.splitlines() if str(path) in line]
    return code, {kind: [line for line in lines if line.startswith(kind)] for kind in ("ok", "look", "PROBLEM")}


def test_what_is_whole_is_said_so(saved, capsys):
    code, said = examine(saved, capsys)
    assert code == 0 and len(said["ok"]) == 5 and not said["look"] + said["PROBLEM"]
    assert examine(saved / "run" / "native" / "step-7", capsys)[1]["ok"]


@pytest.mark.parametrize("kind", damages.KINDS)
def test_damaged_files_are_named_with_their_arrays(chaos, saved, capsys, kind):
    names = ("run/checkpoints/ckpt-1", "run/native/step-7")
    files = [damages.largest_of(saved / name / "arrays") for name in names] + [saved / "m.keras"] * (kind != "remove")
    for file in files:
        chaos.damage(file, kind)
    code, said = examine(saved, capsys)
    assert code == 1 and len(said["PROBLEM"]) == len(files) and len(said["ok"]) == (3 if kind == "remove" else 2)
    for file in files:
        assert any(file.name in line for line in said["PROBLEM"])


def test_what_cannot_be_checked_is_said(saved, capsys):
    about = saved / "run" / "native" / "step-7" / "about"
    (about / "digests.json").unlink()
    (about / "about.json").write_text(json.dumps({"arrays": {}, "about": {}}))
    (saved / "run" / "native" / "step-8.new" / "arrays").mkdir(parents=True)
    code, said = examine(saved, capsys)
    assert code == 0 and len(said["look"]) == 2
    assert "has no digest" in said["look"][0] and "was not completed" in said["look"][1]


def test_a_folder_without_anything_saved_is_a_problem(tmp_path, capsys):
    for path in (tmp_path, tmp_path / "missing"):
        code, said = examine(path, capsys)
        assert code == 1 and len(said["PROBLEM"]) == 1


@pytest.mark.parametrize("name", ["ckpt.index", "ckpt.data-00000-of-00001"])
def test_tensorflows_files_are_compared_with_their_checksums(tmp_path, monkeypatch, chaos, capsys, name):
    monkeypatch.setenv("TFDIST_CHECKPOINT_FORMAT", "tensorflow")
    tf.train.Checkpoint(v=tf.Variable(np.ones(1000))).write(tmp_path / "ckpt")
    (tmp_path / "ckpt-2.index.new").touch()
    code, said = examine(tmp_path, capsys)
    assert code == 0 and len(said["ok"]) == len(said["look"]) == 1
    chaos.damage(tmp_path / name, "truncate")
    code, said = examine(tmp_path, capsys)
    assert code == 1 and name in said["PROBLEM"][0]
