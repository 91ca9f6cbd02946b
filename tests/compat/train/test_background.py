"""Checkpoints that are written while the training goes on."""

import threading

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

BACKGROUND = tf.train.CheckpointOptions(enable_async=True)


def test_steps_that_come_after_do_not_reach_what_is_being_written(tmp_path, held):
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    with strategy.scope():
        variable = tf.Variable(tf.ones([256, 256]), aggregation=tf.VariableAggregation.MEAN)

    @tf.function
    def step():
        strategy.run(lambda: variable.assign_add(tf.ones([256, 256])))

    step()
    checkpoint = tf.train.Checkpoint(v=variable)
    manager = tf.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=1)
    path = manager.save(options=BACKGROUND)
    for _ in range(3):
        step()
    assert manager.latest_checkpoint is None and tf.train.latest_checkpoint(tmp_path) is None
    held.set()
    manager.sync()
    assert manager.latest_checkpoint == tf.train.latest_checkpoint(tmp_path) == path
    assert (tf.train.load_variable(path, "v/.ATTRIBUTES/VARIABLE_VALUE") == 2).all()
    assert (variable.numpy() == 5).all()


def test_the_next_save_waits_for_the_one_before(tmp_path, held):
    variable, order = tf.Variable(1.0), []
    checkpoint = tf.train.Checkpoint(v=variable)
    options = tf.train.CheckpointOptions(enable_async=True, experimental_write_callbacks=[order.append])
    first = checkpoint.save(tmp_path / "ckpt", options)
    threading.Timer(0.2, held.set).start()
    second = checkpoint.save(tmp_path / "ckpt")
    assert order == [first] and tf.train.latest_checkpoint(tmp_path) == second


@pytest.mark.parametrize("call", ["save", "restore", "sync"])
def test_what_fails_in_the_background_is_raised_by_the_next_call(tmp_path, call):
    checkpoint = tf.train.Checkpoint(v=tf.Variable(tf.ones([3])))
    manager = tf.train.CheckpointManager(checkpoint, tmp_path / "kept", max_to_keep=2)
    first = manager.save()

    def refuse():
        raise OSError(28, "No space left on device")

    options = tf.train.CheckpointOptions(enable_async=True, experimental_write_callbacks=[refuse])
    second = manager.save(options=options)
    calls = {"save": manager.save, "restore": lambda: checkpoint.restore(first), "sync": manager.sync}
    with pytest.raises(RuntimeError, match=f"Saving {second} has failed: OSError: .*No space left"):
        calls[call]()
    assert manager.checkpoints == [first]
    assert manager.save() == manager.latest_checkpoint == str(tmp_path / "kept" / "ckpt-3")


def test_a_folder_that_disappears_while_it_is_written_is_an_error_and_no_checkpoint(tmp_path, held):
    checkpoint = tf.train.Checkpoint(v=tf.Variable(tf.ones([1000])))
    path = checkpoint.write(tmp_path / "kept" / "ckpt", BACKGROUND)
    (tmp_path / "kept").rename(tmp_path / "moved")
    held.set()
    with pytest.raises(RuntimeError, match=f"Saving {path} has failed"):
        checkpoint.sync()
    with pytest.raises(tf.errors.NotFoundError):
        tf.train.load_checkpoint(tmp_path / "moved" / "ckpt")


def test_a_program_ends_when_its_checkpoint_is_written(tmp_path, run_prepared):
    program = """
    import numpy as np, tensorflow as tf
    checkpoint = tf.train.Checkpoint(v=[tf.Variable(np.full((300, 300), i, "f4")) for i in range(20)])
    checkpoint.save("kept/ckpt", tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True))
    """
    ran = run_prepared(program)
    assert ran.returncode == 0, ran.stderr
    path = tf.train.latest_checkpoint(tmp_path / "kept")
    for i in range(20):
        assert (tf.train.load_variable(path, f"v/{i}/.ATTRIBUTES/VARIABLE_VALUE") == np.float32(i)).all()
