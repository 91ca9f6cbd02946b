"""Callbacks under a strategy."""

import struct

import keras
import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow.keras._training._callbacks import LazyLogs


def written(folder):
    """Return the summaries in a folder's event files by tag and step."""
    found = {}
    for path in sorted(folder.rglob("events*")):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12 : 12 + length])
            found |= {(value.tag, event.step): value for value in event.summary.value}
            data = data[16 + length :]
    return found


def test_tensorboard_gets_epochs_weights_and_the_models_graph(tmp_path, strategy, make_model, fit, data):
    board = tf.keras.callbacks.TensorBoard(tmp_path, histogram_freq=1, write_images=True)
    history = fit(make_model(strategy), data, validation_data=tuple(data), callbacks=[board])
    train, validation = written(tmp_path / "train"), written(tmp_path / "validation")
    for epoch in range(2):
        np.testing.assert_allclose(train["epoch_loss", epoch].tensor.float_val[0], history["loss"][epoch], rtol=1e-6)
        value = validation["epoch_loss", epoch].tensor.float_val[0]
        np.testing.assert_allclose(value, history["val_loss"][epoch], rtol=1e-6)
        np.testing.assert_allclose(train["epoch_learning_rate", epoch].tensor.float_val[0], 0.1, rtol=1e-6)
    kinds = {value.metadata.plugin_data.plugin_name for value in train.values()}
    assert kinds == {"graph_keras_model", "scalars", "histograms", "images"}


def test_tensorboard_gets_every_second_batch(tmp_path, strategy, make_model, fit, data):
    fit(make_model(strategy), data, epochs=1, callbacks=[tf.keras.callbacks.TensorBoard(tmp_path, update_freq=2)])
    assert {step for tag, step in written(tmp_path) if tag == "batch_loss"} == {2, 4}


@pytest.mark.filterwarnings("ignore:No graph is written")
def test_tensorboard_gets_a_profile(tmp_path, strategy, make_model, fit, data):
    fit(
        make_model(strategy), data, epochs=1, callbacks=[tf.keras.callbacks.TensorBoard(tmp_path, profile_batch=(2, 3))]
    )
    assert list(tmp_path.rglob("*.xplane.pb"))


def test_layers_write_summaries_while_tensorboard_listens(tmp_path, strategy, make_model, fit, data):
    class Watched(keras.layers.Layer):
        def call(self, x):
            tf.summary.histogram("activity", x)
            return x

    model = make_model(strategy, hidden=[Watched])
    fit(model, data, epochs=1, callbacks=[tf.keras.callbacks.TensorBoard(tmp_path, update_freq=1)])
    assert {step for tag, step in written(tmp_path / "train") if tag == "activity"} == {1, 2, 3, 4}


def test_logs_are_read_only_by_who_asks():
    reads = []

    def logs():
        return LazyLogs({"loss": 1}, lambda values: reads.append(1) or {n: float(v) for n, v in values.items()})

    assert "loss" in logs() and len(logs()) == 1 and bool(logs()) and not reads
    assert dict(logs()) == {"loss": 1.0} and {**logs()} == {"loss": 1.0} and logs()["loss"] == 1.0
    assert isinstance(logs().get("loss"), float) and list(logs().items()) == [("loss", 1.0)]
    assert "{loss}".format(**logs()) == "1.0" and len(reads) == 6


def test_batch_logs_are_values_over_all_replicas(strategy, make_model, fit, data):
    def seen(model):
        seen_logs = []
        record = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen_logs.append(dict(logs)))
        fit(model, data.rows(30), epochs=1, batch_size=8, callbacks=[record])
        return seen_logs

    got, expected = seen(make_model(strategy)), seen(make_model())
    assert len(got) == len(expected) == 4
    for mine, alone in zip(got[:3], expected[:3], strict=True):
        np.testing.assert_allclose(mine["loss"], alone["loss"], rtol=1e-5)


def test_usual_callbacks_act_as_without_a_strategy(tmp_path, strategy, make_model, fit, data):
    def run(model, name):
        callbacks = [
            keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5),
            keras.callbacks.ReduceLROnPlateau("loss", factor=0.1, patience=0, min_delta=10.0),
            keras.callbacks.EarlyStopping("loss", patience=1, min_delta=10.0),
            keras.callbacks.CSVLogger(str(tmp_path / name)),
            keras.callbacks.TerminateOnNaN(),
        ]
        return fit(model, data, epochs=5, callbacks=callbacks)

    got, expected = run(make_model(strategy), "a.csv"), run(make_model(), "b.csv")
    assert len(got["loss"]) == len(expected["loss"]) < 5
    np.testing.assert_allclose(got["loss"], expected["loss"], rtol=1e-5)
    np.testing.assert_allclose(got["learning_rate"], expected["learning_rate"], rtol=1e-6)
    rows = (tmp_path / "a.csv").read_text().splitlines()
    assert len(rows) == 1 + len(got["loss"])


@pytest.mark.parametrize("name", ["{epoch}.keras", "{epoch}.weights.h5", "plain"])
def test_checkpoints_hold_the_models_weights(name, tmp_path, strategy, make_model, fit, data):
    weights_only = not name.endswith(".keras")
    saver = keras.callbacks.ModelCheckpoint(tmp_path / name, save_weights_only=weights_only)
    model = make_model(strategy)
    fit(model, data, callbacks=[saver])
    path = tmp_path / name.format(epoch=2)
    if weights_only:
        other = make_model(strategy)
        other.optimizer.build(other.trainable_variables)
        other.load_weights(path)
    else:
        other = keras.models.load_model(path)
    for got, expected in zip(other.weights, model.weights, strict=True):
        np.testing.assert_array_equal(got.numpy(), expected.numpy())
