"""With TFDIST_CHECKPOINT_FORMAT=tensorflow, checkpoints are files that real TensorFlow restores."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from environment import LIMIT_S

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow.train._bundle._reader import BundleReader

VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


@pytest.fixture(autouse=True)
def tensorflow_format(monkeypatch):
    monkeypatch.setenv("TFDIST_CHECKPOINT_FORMAT", "tensorflow")


def names(folder):
    return sorted(file.name for file in folder.iterdir())


def test_a_manager_writes_and_removes_files(tmp_path):
    variable = tf.Variable([1.0, 2.0])
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(v=variable), tmp_path, max_to_keep=2)
    for _ in range(3):
        variable.assign_add([1.0, 1.0])
        manager.save()
    files = [f"ckpt-{n}.{kind}" for n in (2, 3) for kind in ("data-00000-of-00001", "index")]
    assert names(tmp_path) == ["checkpoint", *files]
    other = tf.train.Checkpoint(v=tf.Variable([0.0, 0.0]))
    other.restore(tf.train.latest_checkpoint(tmp_path)).assert_consumed()
    assert other.v.numpy().tolist() == [4, 5] and other.save_counter.numpy() == 3
    (tmp_path / "ckpt-3.data-00000-of-00001").write_bytes(b"")  # Also if it was found to be whole before.
    assert manager.latest_checkpoint == tf.train.latest_checkpoint(tmp_path) == str(tmp_path / "ckpt-2")


def test_a_name_may_have_any_letters(tmp_path):
    checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0))
    path = checkpoint.save(tmp_path / 'größe"[a-z]*\\1')
    assert tf.train.latest_checkpoint(tmp_path) == path
    checkpoint.restore(checkpoint.save(tmp_path / 'größe"[a-z]*\\1')).assert_consumed()
    assert len(names(tmp_path)) == 5


def test_a_name_can_be_written_again_in_either_format(tmp_path, monkeypatch):
    variable = tf.Variable(0.0)
    checkpoint = tf.train.Checkpoint(v=variable)
    for number, kind in enumerate(["tensorflow", "tensorflow", "orbax", "tensorflow", "orbax", "tensorflow"]):
        monkeypatch.setenv("TFDIST_CHECKPOINT_FORMAT", kind)
        variable.assign(number)
        path = checkpoint.write(tmp_path / "ckpt")
        variable.assign(-1)
        checkpoint.read(path).assert_consumed()
        assert variable.numpy() == number
        assert (names(tmp_path) == ["ckpt"]) == (kind == "orbax")


def test_another_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDIST_CHECKPOINT_FORMAT", "npz")
    with pytest.raises(ValueError, match=r"TFDIST_CHECKPOINT_FORMAT is 'npz'.*'orbax' or 'tensorflow'"):
        tf.train.Checkpoint(v=tf.Variable(1.0)).write(tmp_path / "ckpt")
    assert names(tmp_path) == []


def test_what_is_written_in_the_background_is_what_was_there(tmp_path):
    variable = tf.Variable(np.zeros(1000))
    checkpoint = tf.train.Checkpoint(v=variable)
    options = tf.train.CheckpointOptions(enable_async=True)
    for number in range(3):
        variable.assign(np.full(1000, float(number)))
        path = checkpoint.save(tmp_path / "ckpt", options)
        variable.assign(np.full(1000, -1.0))
    checkpoint.sync()
    assert set(tf.train.load_variable(path, f"v{VALUE}").tolist()) == {2.0}


def test_a_full_disk_keeps_the_checkpoints_that_are_there(tmp_path, chaos):
    noise = np.random.default_rng(0).random(100_000)
    variable = tf.Variable(noise)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(v=variable), tmp_path, 2)
    first = manager.save()
    before = names(tmp_path)
    with chaos.full_disk(up_to=1 << 18), pytest.raises(OSError, match="File too large"):
        manager.save()
    assert names(tmp_path) == before and manager.latest_checkpoint == first
    np.testing.assert_array_equal(tf.train.load_variable(first, f"v{VALUE}"), noise)


def make_model(keras):
    """A model with seeds, and with layers in a list, which TensorFlow does not follow."""

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.blocks = [keras.layers.Dense(4), keras.layers.Dropout(0.5)]
            self.last = keras.layers.Dense(1)

        def call(self, x, training=False):
            for block in self.blocks:
                x = block(x) if isinstance(block, keras.layers.Dense) else block(x, training=training)
            return self.last(x)

    return Model()


def test_what_tensorflow_does_not_save_is_restored_here(tmp_path):
    model = make_model(tf.keras)
    model(np.zeros((1, 3)))
    saved = [np.asarray(variable) for variable in model.variables]
    assert len(saved) == 5
    metric = tf.keras.metrics.Mean()
    metric.update_state(3.0)
    iterator = iter(tf.data.Dataset.range(5))
    next(iterator)
    path = tf.train.Checkpoint(model=model, metric=metric, iterator=iterator).save(tmp_path / "ckpt")
    other = make_model(tf.keras)
    checkpoint = tf.train.Checkpoint(
        model=other, metric=tf.keras.metrics.Mean(), iterator=iter(tf.data.Dataset.range(5))
    )
    status = checkpoint.restore(path)
    other(np.zeros((1, 3)))
    status.assert_consumed()
    for variable, value in zip(other.variables, saved, strict=True):
        np.testing.assert_array_equal(variable, value)
    assert float(checkpoint.metric.result()) == 3 and int(next(checkpoint.iterator)) == 1


def test_a_variable_may_be_the_root(tmp_path):
    variable = tf.Variable([1.0, 2.0])
    path = tf.train.Checkpoint(variable).save(tmp_path / "ckpt")
    variable.assign([0.0, 0.0])
    tf.train.Checkpoint(variable).restore(path).assert_consumed()
    assert variable.numpy().tolist() == [1, 2]


def test_weights_of_a_model_are_written_too(tmp_path):
    model = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Dense(1)])
    model.save_weights(tmp_path / "weights")
    saved = model.get_weights()
    model.set_weights([weight + 1 for weight in saved])
    model.load_weights(tmp_path / "weights").assert_consumed()
    for weight, value in zip(model.get_weights(), saved, strict=True):
        np.testing.assert_array_equal(weight, value)
    assert names(tmp_path) == ["checkpoint", "weights.data-00000-of-00001", "weights.index"]


def test_under_a_strategy_values_are_written_whole(tmp_path):
    strategy = tf.distribute.MirroredStrategy()
    with strategy.scope():
        variable = tf.Variable([1.0, 2.0])
        local = tf.Variable(
            0.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM
        )
    strategy.run(lambda: local.assign_add(1.0))
    path = tf.train.Checkpoint(v=variable, local=local).write(tmp_path / "ckpt")
    assert tf.train.load_variable(path, f"v{VALUE}").tolist() == [1, 2]
    assert tf.train.load_variable(path, f"local{VALUE}") == strategy.num_replicas_in_sync


OBJECTS = """
import sys
import numpy as np
layers, keras = tf.keras.layers, tf.keras

class Text(tf.train.experimental.PythonState):
    text = "before"

    def serialize(self):
        return self.text

    def deserialize(self, string_value):
        self.text = string_value

def make():
    inputs = layers.Input((5,))
    x = layers.Embedding(10, 4)(inputs)
    x = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(x)
    x = layers.MultiHeadAttention(2, 2)(x, x)
    x = layers.Dropout(0.1)(layers.BatchNormalization()(x))
    inner = keras.Sequential([layers.Dense(2), layers.Dense(1)])
    model = keras.Model(inputs, inner(layers.Flatten()(x)))
    optimizers = {
        "adam": keras.optimizers.Adam(0.01, amsgrad=True),
        "scaled": keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)),
        "decaying": keras.optimizers.RMSprop(keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)),
        "factored": keras.optimizers.Adafactor(0.1),
    }
    for optimizer in optimizers.values():
        optimizer.build(model.trainable_variables)
    generator = tf.random.Generator.from_seed(3)
    parts = {"rows": [tf.Variable([0, 0]), {"a/b": tf.Variable(0.0)}], "pair": (tf.Variable(0.0), tf.Variable(0.0))}
    checkpoint = tf.train.Checkpoint(
        model=model, generator=generator, text=Text(), flag=tf.Variable(False), half=tf.Variable(tf.zeros([2], tf.bfloat16)),
        empty=tf.Variable(tf.zeros([0, 2])), **optimizers, **parts
    )
    variables = [v for group in (model, *optimizers.values()) for v in group.variables if "seed" not in v.path]
    return checkpoint, variables
"""
WRITING = """
checkpoint, variables = make()
random = np.random.default_rng(0)
for variable in variables:
    variable.assign((random.normal(size=variable.shape) * 9).astype(variable.dtype))
checkpoint.generator.normal([3])
checkpoint.text.text = "saved"
checkpoint.flag.assign(True)
checkpoint.half.assign(tf.cast([1.5, 2.5], tf.bfloat16))
checkpoint.rows[0].assign([3, 4])
checkpoint.rows[1]["a/b"].assign(5.0)
checkpoint.pair[1].assign(6.0)
checkpoint.save(sys.argv[1])
checkpoint.save(sys.argv[1])
"""
READING = """
checkpoint, variables = make()
checkpoint.restore(sys.argv[1] + "-2").assert_consumed().assert_existing_objects_matched()
random = np.random.default_rng(0)
for variable in variables:
    np.testing.assert_array_equal(variable, (random.normal(size=variable.shape) * 9).astype(variable.dtype), variable.path)
generator = tf.random.Generator.from_seed(3)
generator.normal([3])
np.testing.assert_array_equal(checkpoint.generator.state, generator.state)
text = checkpoint.text.text
assert (text.decode() if isinstance(text, bytes) else text) == "saved"
assert checkpoint.flag.numpy() and np.asarray(checkpoint.half, "f4").tolist() == [1.5, 2.5]
assert checkpoint.rows[0].numpy().tolist() == [3, 4] and checkpoint.rows[1]["a/b"].numpy() == 5
assert checkpoint.pair[1].numpy() == 6 and checkpoint.save_counter.numpy() == 2
print("all", len(variables))
"""
OURS = "import tfdist_jax.compat.tensorflow as tf\n"
REAL = "import tensorflow as tf\n"


@pytest.mark.one_in(2)
@pytest.mark.peers
@pytest.mark.slow("starts TensorFlow")
@pytest.mark.parametrize(("writer", "reader"), [(OURS, REAL), (REAL, OURS)], ids=["from here", "to here"])
def test_models_and_optimizers_go_from_here_to_tensorflow_and_back(run_script, tmp_path, writer, reader):
    for library, what in ((writer, WRITING), (reader, READING)):
        ran = run_script(
            library + OBJECTS + what, str(tmp_path / "ckpt"), env={"TFDIST_CHECKPOINT_FORMAT": "tensorflow"}
        )
        assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("all ")
    assert f"adam/_trainable_variables/0{VALUE}" in dict(tf.train.list_variables(tmp_path / "ckpt-2"))


TRAINING = textwrap.dedent(
    """
    import sys
    import numpy as np
    import tfdist_jax.compat.tensorflow as tf

    variables = [tf.Variable(np.zeros(20_000)) for _ in range(10)]
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
            variable.assign_add(np.ones(20_000))
        manager.save()
        checkpoint.write(sys.argv[1] + "/same")
        print("saved", step, flush=True)
    """
)


@pytest.mark.slow("kills five processes")
@pytest.mark.parametrize("kills", [5, pytest.param(30, marks=pytest.mark.exhaustive)])
def test_nothing_saved_is_lost_and_nothing_half_saved_is_found_when_the_process_is_killed(tmp_path, kills):
    moments, folder, saved, written = random.Random(kills), tmp_path / "checkpoints", 0, 0
    for _ in range(kills):
        began, reported = _run_and_kill(folder, moments.randint(0, 2), moments.uniform(0, 0.1))
        assert began >= saved, "what `save` had returned was lost"
        saved, written = max(saved, began, reported), max(written, reported)
        for index in folder.glob("*.index"):
            BundleReader(index.with_suffix("")).check()
    assert saved >= 2
    values = {tf.train.load_variable(folder / "same", f"variables/{i}{VALUE}")[0] for i in range(10)}
    assert len(values) == 1 and written <= values.pop() <= saved + 1
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(variables=[tf.Variable(np.zeros(20_000)) for _ in range(10)]), folder, max_to_keep=2
    )
    manager.restore_or_initialize()
    manager.save()
    manager.checkpoint.write(folder / "same")  # Removes what is left of one that was stopped.
    kept = {Path(path).name for path in manager.checkpoints} | {"same"}
    assert {name.rpartition(".")[0] or name for name in names(folder)} == kept | {"checkpoint"}


def _run_and_kill(folder, saves, after_s):
    """Return the step that a training began with, and the last one of which it said that it was saved, or 0."""
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINING, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TFDIST_CHECKPOINT_FORMAT": "tensorflow"},
    )
    first = process.stdout.readline().split()
    assert first[:1] == ["began"], process.communicate()[1]
    lines = [process.stdout.readline() for _ in range(saves)]
    time.sleep(after_s)
    process.send_signal(signal.SIGKILL)
    words = "".join([*lines, process.communicate(timeout=LIMIT_S)[0]]).split()
    return int(first[1]), max((int(word) for word in words if word.isdigit()), default=0)
