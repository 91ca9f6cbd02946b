"""Whatever stops a process while it saves: what was saved before stays, and nothing half-written is taken for complete."""

import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax._checkpoint import _checkpoint

TRAINING = textwrap.dedent(
    """
    import sys
    import tfdist_jax.compat.tensorflow as tf

    variables = [tf.Variable([0.0] * 2000) for _ in range(20)]
    checkpoint = tf.train.Checkpoint(variables=variables)
    manager = tf.train.CheckpointManager(checkpoint, sys.argv[1], max_to_keep=2)
    manager.restore_or_initialize()
    values = {float(v) for variable in variables for v in variable.numpy()}
    assert len(values) == 1, values
    step = int(values.pop())
    print("began", step, flush=True)
    while True:
        step += 1
        for variable in variables:
            variable.assign_add([1.0] * 2000)
        manager.save()
        print("saved", step, flush=True)
    """
)


@pytest.mark.slow("kills five processes")
@pytest.mark.parametrize("kills", [5, pytest.param(10, marks=pytest.mark.exhaustive)])
def test_nothing_saved_is_lost_and_nothing_half_saved_is_found_when_the_process_is_killed(tmp_path, kills):
    moments = random.Random(0)
    folder = tmp_path / "checkpoints"
    saved = 0
    for _ in range(kills):
        began, reported = _run_and_kill(folder, saves=moments.randint(0, 2), after_s=moments.uniform(0.02, 0.4))
        assert began >= saved, "what `save` had returned was lost"
        saved = max(saved, reported)
    assert saved >= 2
    variables = [tf.Variable([0.0] * 2000) for _ in range(20)]
    checkpoint = tf.train.Checkpoint(variables=variables)
    manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=2)
    checkpoint.restore(manager.latest_checkpoint).assert_consumed()
    assert {float(v) for variable in variables for v in variable.numpy()} <= {float(saved), float(saved + 1)}
    manager.save()  # Also in the place of one that was written, but not on the list yet.
    assert sorted(path.name.partition("-")[0] for path in folder.iterdir()) == ["checkpoint", "ckpt", "ckpt"]


def _run_and_kill(folder, saves, after_s):
    """Return the step that a training began with, and the last one of which it said that it was saved.

    It is killed `after_s` after so many saves: how long they take depends on the machine.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINING, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    first = process.stdout.readline().split()
    assert first[:1] == ["began"], process.communicate()[1]
    lines = [process.stdout.readline() for _ in range(saves)]
    time.sleep(after_s)
    process.send_signal(signal.SIGKILL)
    words = "".join([*lines, process.communicate()[0]]).split()
    return int(first[1]), max([int(first[1]), *(int(word) for word in words if word.isdigit())])


def _save(path, value):
    _checkpoint.begin_saving(path, {"x": np.full(3, value)}, {})()


def test_everything_is_on_disk_before_a_checkpoint_has_its_name(tmp_path, monkeypatch):
    named, synced, final = [], set(), tmp_path / "ckpt"
    fsync, rename = os.fsync, pathlib.Path.rename

    def noting_fsync(handle):
        synced.add(os.fstat(handle).st_ino)
        fsync(handle)

    def noting_rename(path, target):
        if path.parent == tmp_path:
            named.append({each.stat().st_ino for each in (path, *path.rglob("*"))} - synced)
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(pathlib.Path, "rename", noting_rename)
    _save(final, 1.0)
    assert named == [set(), set()] and _checkpoint.is_saved(final)


def _steps_of_replacing(monkeypatch, stop_at):
    """Let the process end before its `stop_at`-th renaming or removal."""
    count = iter(range(100))

    def stopping(original):
        def change(*args, **kwargs):
            if next(count) == stop_at:
                raise KeyboardInterrupt
            return original(*args, **kwargs)

        return change

    monkeypatch.setattr(pathlib.Path, "rename", stopping(pathlib.Path.rename))
    monkeypatch.setattr(shutil, "rmtree", stopping(shutil.rmtree))


@pytest.mark.parametrize("stop_at", range(4))
def test_replacing_a_checkpoint_leaves_the_old_or_the_new_one_wherever_it_is_stopped(tmp_path, stop_at):
    path = tmp_path / "ckpt"
    _save(path, 1.0)
    with pytest.MonkeyPatch.context() as patch:
        _steps_of_replacing(patch, stop_at)
        with pytest.raises(KeyboardInterrupt):
            _save(path, 2.0)
    assert _checkpoint.is_saved(path)
    assert _checkpoint.load_arrays(path)["x"].tolist() in ([1.0] * 3, [2.0] * 3)
    _save(path, 3.0)
    assert _checkpoint.load_arrays(path)["x"].tolist() == [3.0] * 3
    assert [entry.name for entry in tmp_path.iterdir()] == ["ckpt"]


@pytest.mark.parametrize(("stop_at", "is_there"), [(1, True), (2, False)])
def test_a_half_removed_checkpoint_is_none(tmp_path, stop_at, is_there):
    path = tmp_path / "ckpt"
    _save(path, 1.0)
    with pytest.MonkeyPatch.context() as patch:
        _steps_of_replacing(patch, stop_at)
        with pytest.raises(KeyboardInterrupt):
            _checkpoint.delete(path)
    assert _checkpoint.is_saved(path) == is_there


def test_the_newest_checkpoint_of_a_folder_is_a_complete_one(tmp_path):
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(x=tf.Variable(1.0)), tmp_path, max_to_keep=3)
    first, second = manager.save(), manager.save()
    (tmp_path / "ckpt-2" / "about").rename(tmp_path / "ckpt-2" / "elsewhere")
    assert tf.train.latest_checkpoint(tmp_path) == first
    again = tf.train.CheckpointManager(tf.train.Checkpoint(x=tf.Variable(0.0)), tmp_path, max_to_keep=3)
    assert again.latest_checkpoint == first and again.restore_or_initialize() == first
    assert second == again.save(), "it takes the place of what is not complete"
    assert again.latest_checkpoint == second
