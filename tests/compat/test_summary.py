"""`tf.summary`: what is in the event files."""

import struct

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

import tfdist_jax.compat.tensorflow as tf


def events(folder):
    """Return (step, value) for each summary in a folder's event files."""
    found = []
    for path in sorted(folder.rglob("events*")):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12 : 12 + length])
            found += [(event.step, value) for value in event.summary.value]
            data = data[16 + length :]
    return found


def scalars(folder):
    return {(value.tag, step): value.tensor.float_val[0] for step, value in events(folder)}


@pytest.fixture
def writer(tmp_path):
    writer = tf.summary.create_file_writer(str(tmp_path))
    yield writer
    writer.close()


def test_kinds_have_the_plugins_that_tensorboard_asks_for(writer, tmp_path):
    with writer.as_default(step=3), tf.name_scope("scope"):
        assert bool(tf.summary.scalar("a", 1.5))
        tf.summary.histogram("h", np.arange(10.0))
        tf.summary.image("i", np.zeros((2, 4, 5, 3)))
        tf.summary.text("t", "hi")
        tf.summary.audio("s", np.zeros((1, 100, 1)), 8000)
    writer.flush()
    found = {value.tag: value for step, value in events(tmp_path) if step == 3}
    plugins = {tag: value.metadata.plugin_data.plugin_name for tag, value in found.items()}
    assert plugins == {
        "scope/a": "scalars",
        "scope/h": "histograms",
        "scope/i": "images",
        "scope/t": "text",
        "scope/s": "audio",
    }
    buckets = np.frombuffer(found["scope/h"].tensor.tensor_content).reshape(-1, 3)
    assert buckets.shape == (30, 3) and buckets[:, 2].sum() == 10 and buckets[0, 0] == 0 and buckets[-1, 1] == 9
    width, height, *images = found["scope/i"].tensor.string_val
    assert (width, height, len(images)) == (b"5", b"4", 2) and images[0].startswith(b"\x89PNG")


def test_functions_write_when_they_run_with_the_step_they_read(writer, tmp_path):
    step = tf.Variable(0, dtype=tf.int64)

    @tf.function
    def f(x):
        step.assign_add(1)
        tf.summary.scalar("always", x, step=step)
        with tf.summary.record_if(lambda: tf.equal(step % 2, 0)):
            tf.summary.scalar("even", x, step=step)

    with writer.as_default():
        for i in range(4):
            f(tf.constant(float(i)))
    writer.flush()
    expected = {("always", i + 1): float(i) for i in range(4)} | {("even", 2): 1.0, ("even", 4): 3.0}
    assert scalars(tmp_path) == expected


def test_only_the_first_replica_writes(writer, tmp_path):
    strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(4)])

    @tf.function
    def step():
        def replica():
            tf.summary.scalar("id", tf.distribute.get_replica_context().replica_id_in_sync_group, step=7)

        strategy.run(replica)

    with writer.as_default():
        step()
    writer.flush()
    assert [(s, v.tensor.int_val or v.tensor.float_val[0]) for s, v in events(tmp_path)] == [(7, 0.0)]


def test_nothing_is_written_without_a_writer_or_where_recording_is_off(writer, tmp_path):
    assert not bool(tf.summary.scalar("a", 1.0, step=1)) and not bool(tf.summary.should_record_summaries())
    with writer.as_default(), tf.summary.record_if(False):
        assert not bool(tf.summary.scalar("a", 1.0, step=1))
    writer.flush()
    assert events(tmp_path) == []


def test_errors(writer):
    with writer.as_default(), pytest.raises(ValueError, match="No step set"):
        tf.summary.scalar("a", 1.0)
    with writer.as_default(step=1), pytest.raises(ValueError, match="one number"):
        tf.summary.scalar("a", [1.0, 2.0])
    writer.close()
    with pytest.raises(RuntimeError, match="already closed"):
        writer.as_default()


def test_default_step(writer, tmp_path):
    tf.summary.experimental.set_step(9)
    try:
        with writer.as_default():
            tf.summary.scalar("a", 2.0)
        assert tf.summary.experimental.get_step() == 9
    finally:
        tf.summary.experimental.set_step(None)
    writer.flush()
    assert scalars(tmp_path) == {("a", 9): 2.0}
