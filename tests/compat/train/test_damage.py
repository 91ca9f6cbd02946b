"""A damaged checkpoint is never restored: it is named, or passed over in favour of the one before."""

import json
import shutil
import threading
from pathlib import Path

import damages
import numpy as np
import pytest

import tfdist_jax as td
import tfdist_jax.compat.tensorflow as tf
from tfdist_jax._checkpoint import _checkpoint
from tfdist_jax.testing import files_in

SHAPES = {"small": (3,), "wide": (200, 7), "large": (700, 700), "square": (100, 100)}


def noise():
    """Values that no compression makes small."""
    return np.random.default_rng(0).random((300, 300), "f4")


def make_variables(value=None):
    draw = np.random.default_rng(0).normal
    return {
        name: tf.Variable(draw(size=shape).astype("f4") if value is None else np.full(shape, value, "f4"))
        for name, shape in SHAPES.items()
    }


@pytest.fixture
def saved(tmp_path):
    return Path(tf.train.Checkpoint(**make_variables()).save(tmp_path / "ckpt"))


@pytest.fixture
def manager(tmp_path):
    """A manager of three checkpoints, in which a variable is 1, 2 and 3 more than noise."""
    variable = tf.Variable(noise())
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(variable=variable), tmp_path, max_to_keep=3)
    for _ in range(3):
        variable.assign_add(np.ones((300, 300)))
        manager.save()
    return manager


@pytest.fixture
def flip(chaos):
    """A function that flips a bit of a checkpoint's arrays."""
    return lambda path: chaos.damage(damages.largest_of(path), "flip")


@pytest.mark.parametrize("kind", damages.KINDS)
def test_damage_anywhere_in_any_file_is_found(chaos, saved, kind):
    files = files_in(saved)
    by_size = chaos.random.choices(files, [file.stat().st_size for file in files], k=100 if kind == "flip" else 25)
    checkpoint = tf.train.Checkpoint(**make_variables(0))
    for file in [*by_size, *chaos.random.choices(files, k=100 if kind == "flip" else 25)]:
        with chaos.damage(file, kind), pytest.raises(tf.errors.DataLossError) as raised:
            checkpoint.restore(str(saved))
        assert file.name in str(raised.value) and str(saved) in str(raised.value)
    assert not any(
        variable.numpy().any() for variable in checkpoint.__dict__.values() if isinstance(variable, tf.Variable)
    )
    checkpoint.restore(str(saved)).assert_existing_objects_matched()
    for name, variable in make_variables().items():
        np.testing.assert_array_equal(getattr(checkpoint, name), variable)


def test_the_arrays_in_a_damaged_file_and_the_newest_whole_checkpoint_are_named(manager, flip):
    flip(manager.checkpoints[0])
    flip(manager.checkpoints[2])
    with pytest.raises(
        tf.errors.DataLossError, match=rf"'variable/.ATTRIBUTES/VARIABLE_VALUE'.*{manager.checkpoints[1]} is whole"
    ):
        tf.train.Checkpoint(variable=tf.Variable(np.zeros((300, 300)))).restore(manager.checkpoints[2])
    with pytest.raises(tf.errors.DataLossError, match="damaged"):
        tf.train.load_checkpoint(manager.checkpoints[2]).get_tensor("variable/.ATTRIBUTES/VARIABLE_VALUE")


def test_only_the_array_that_is_damaged_is_named(chaos, saved):
    """The largest one has a file for itself, or blocks of one."""
    names = set()
    for _ in range(5):
        with (
            chaos.damage(damages.largest_of(saved), "flip"),
            pytest.raises(td.DataLossError) as raised,
        ):
            _checkpoint.load_arrays(saved)
        names |= {name for name in SHAPES if f"'{name}/" in str(raised.value)}
    assert "large" in names


def test_what_finds_the_newest_checkpoint_goes_back_and_says_so(manager, flip, tmp_path, caplog):
    flip(manager.checkpoints[2])
    assert tf.train.latest_checkpoint(tmp_path) == manager.latest_checkpoint == str(tmp_path / "ckpt-2")
    assert tf.train.get_checkpoint_state(tmp_path).model_checkpoint_path == str(tmp_path / "ckpt-3")
    assert caplog.text.count("Going back to") == 1 and "ckpt-3 is damaged" in caplog.text
    variable = tf.Variable(np.zeros((300, 300), "f4"))
    later = tf.train.CheckpointManager(tf.train.Checkpoint(variable=variable), tmp_path, max_to_keep=3)
    later.restore_or_initialize()
    np.testing.assert_array_equal(variable.numpy(), noise() + 1 + 1)
    assert later.save() == str(tmp_path / "ckpt-3") == later.latest_checkpoint, "it takes the damaged one's place"


@pytest.mark.parametrize("gone", ["arrays", "about"])
def test_a_checkpoint_without_one_of_its_folders_is_damaged(manager, tmp_path, caplog, gone):
    shutil.rmtree(tmp_path / "ckpt-3" / gone)
    assert tf.train.latest_checkpoint(tmp_path) == manager.latest_checkpoint == str(tmp_path / "ckpt-2")
    assert f"ckpt-3 is damaged: {gone}/" in caplog.text and "Going back to" in caplog.text
    with pytest.raises(tf.errors.DataLossError, match=rf"ckpt-3 is damaged: {gone}/"):
        tf.train.load_checkpoint(tmp_path / "ckpt-3").get_tensor("variable/.ATTRIBUTES/VARIABLE_VALUE")


def test_going_back_can_be_forbidden(manager, flip, tmp_path, monkeypatch):
    flip(manager.checkpoints[2])
    monkeypatch.setenv("TFDIST_SKIP_DAMAGED", "0")
    with pytest.raises(tf.errors.DataLossError, match=r"ckpt-3 is damaged.*TFDIST_SKIP_DAMAGED=0"):
        tf.train.latest_checkpoint(tmp_path)


def test_a_training_does_not_begin_anew_because_all_are_damaged(manager, flip, tmp_path):
    for path in manager.checkpoints:
        flip(path)
    for find in (lambda: tf.train.latest_checkpoint(tmp_path), manager.restore_or_initialize):
        with pytest.raises(tf.errors.DataLossError, match=r"No other one here is whole\. Remove them to begin anew"):
            find()


def test_what_an_older_version_has_saved_has_no_digests_and_is_restored(saved):
    (saved / "about" / "digests.json").unlink()
    about = saved / "about" / "about.json"
    about.write_text(
        json.dumps({name: value for name, value in json.loads(about.read_text()).items() if name != "digests"})
    )
    checkpoint = tf.train.Checkpoint(**make_variables(0))
    checkpoint.restore(tf.train.latest_checkpoint(saved.parent)).assert_existing_objects_matched()
    for damaged in ("[]", "{"):
        about.write_text(damaged)
        with pytest.raises(tf.errors.DataLossError, match=r"about/about.json does not hold what was written"):
            checkpoint.restore(str(saved))
    about.unlink()
    with pytest.raises(tf.errors.DataLossError, match=r"about/about.json is gone"):
        checkpoint.restore(str(saved))


def test_a_checkpoint_that_is_replaced_while_it_is_read_is_not_taken_for_damaged(tmp_path):
    path, is_over = tmp_path / "ckpt", threading.Event()
    save = lambda value: _checkpoint.begin_saving(path, {str(i): np.full(100, value) for i in range(3)}, {})()
    save(0)

    def write():
        for value in range(30):
            save(value)
        is_over.set()

    writer, reads = threading.Thread(target=write), 0
    writer.start()
    while not is_over.is_set():
        try:
            _checkpoint.must_be_whole(path)
        except FileNotFoundError:
            continue  # Between two renames.
        reads += 1
    writer.join()
    assert reads
