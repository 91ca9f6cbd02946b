"""Models whose layers lie on several devices train stage by stage, to the same weights as on one."""

import copy
import pickle

import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax._stateful import _staged_step

FULL = "/job:localhost/replica:0/task:0/device:CPU:"
APART, TOGETHER = ("/cpu:1", "/cpu:2"), (None, None)


def places(variables):
    return [int(variable.value.device.removeprefix(FULL)) for variable in variables]


def make_functional(devices):
    keras.utils.set_random_seed(1)
    with tf.device(devices[0]):
        inputs = tf.keras.Input(shape=(8,))
        x = tf.keras.layers.Dense(16, activation="relu")(inputs)
        x = tf.keras.layers.BatchNormalization()(x)
    with tf.device(devices[1]):
        x = tf.keras.layers.Dropout(0.25)(x)
        x = tf.nn.relu(x) + 1.0
        outputs = tf.keras.layers.Dense(4)(x)
    return tf.keras.Model(inputs, outputs)


def make_sequential(devices):
    """Build later, outside of scopes."""
    keras.utils.set_random_seed(1)
    with tf.device(devices[0]):
        first = tf.keras.layers.Dense(16, activation="relu", kernel_regularizer="l2")
    with tf.device(devices[1]):
        second = tf.keras.layers.Dense(4)
    return tf.keras.Sequential([first, second])


class Custom(tf.keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"loss": loss}


def make_custom(devices):
    model = make_functional(devices)
    return Custom(model.inputs, model.outputs)


def compile_model(model, optimizer="adam", **options):
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, **options)
    return model


@pytest.mark.one_in(4)
@pytest.mark.parametrize("make", [make_functional, make_sequential, make_custom])
@pytest.mark.parametrize("clip", [{}, {"global_clipnorm": 0.1}])
def test_fit_runs_stage_by_stage_to_the_same_weights(data, stages, make, clip):
    rows = data.rows(60)  # The last batch has 12.
    models = [compile_model(make(devices), tf.keras.optimizers.Adam(0.01, **clip)) for devices in (APART, TOGETHER)]
    histories = [model.fit(*rows, batch_size=16, epochs=2, verbose=0, shuffle=False).history for model in models]
    assert {1, 2} <= set(stages)
    np.testing.assert_allclose(histories[0]["loss"], histories[1]["loss"], rtol=1e-6)
    for variable, other in zip(models[0].variables, models[1].variables, strict=True):
        np.testing.assert_allclose(variable.numpy(), other.numpy(), rtol=1e-5, atol=1e-6)
    model, twin = models
    np.testing.assert_allclose(model.evaluate(*rows, verbose=0), twin.evaluate(*rows, verbose=0), rtol=1e-6)
    np.testing.assert_allclose(model.predict(rows.x, verbose=0), twin.predict(rows.x, verbose=0), rtol=1e-5, atol=1e-6)
    assert set(places(twin.variables)) == {0}


def test_weights_and_what_optimizers_keep_of_them_stay_on_their_layers_devices(data):
    model = compile_model(make_sequential(APART))
    model.fit(*data.rows(16), verbose=0)
    assert places(model.weights) == [1, 1, 2, 2]
    slots = model.optimizer.variables[2:]
    assert places(slots) == [1, 1, 1, 1, 2, 2, 2, 2]
    assert set(places(model.optimizer.variables[:2])) == {0}


@pytest.mark.parametrize("is_twin", [False, True])
def test_backpropagation_of_each_layer_runs_on_its_device(data, stages, monkeypatch, is_twin):
    model = compile_model(make_functional(TOGETHER if is_twin else APART), "sgd")
    programs, make = [], _staged_step._StageProgram.compile

    def noting(program):
        programs.append(program._stage)
        make(program)

    monkeypatch.setattr(_staged_step._StageProgram, "compile", noting)
    model.train_on_batch(*data.rows(16))
    dots = [
        (stage.device.id, [equation.primitive.name for equation in stage.program.eqns].count("dot_general"))
        for stage in programs
    ]
    assert [dot for dot in dots if dot[1]] == ([] if is_twin else [(1, 1), (2, 3), (1, 1)])


def test_eager_calls_and_gradients_run_on_the_layers_devices(data):
    model = make_sequential(APART)
    with tf.GradientTape() as tape:
        hidden = model.layers[0](data.x)
        loss = tf.reduce_mean(model.layers[1](hidden) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    assert [int(value.device.removeprefix(FULL)) for value in (hidden, loss, *gradients)] == [1, 0, 1, 1, 2, 2]
    optimizer = tf.keras.optimizers.Adam()
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    assert places(model.weights) == [1, 1, 2, 2]


def test_a_scope_around_a_call_counts_more_than_the_layers_own(data):
    model = make_sequential(APART)
    model.build((None, 8))
    with tf.device("/cpu:3"):
        assert model.layers[0](data.x).device == f"{FULL}3"
    assert model.layers[0](data.x).device == f"{FULL}1" and places(model.weights) == [1, 1, 2, 2]


def test_layers_in_a_model_of_another_device_keep_theirs(data):
    class Outer(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.own = tf.keras.layers.Dense(3)
            with tf.device("/cpu:2"):
                self.inner = tf.keras.layers.Dense(3)

        def call(self, x):
            return self.inner(self.own(x))

    with tf.device("/cpu:1"):
        model = Outer()
    assert model(data.x).device == f"{FULL}2"
    assert places(model.own.weights) == [1, 1] and places(model.inner.weights) == [2, 2]


def test_files_keep_what_the_devices_hold(data, tmp_path):
    model = compile_model(make_sequential(APART))
    model.fit(*data.rows(16), verbose=0)
    wanted = model.predict(data.x, verbose=0)
    model.save_weights(tmp_path / "model.weights.h5")
    model.save(tmp_path / "model.keras")
    model.set_weights([np.zeros(variable.shape) for variable in model.weights])
    assert places(model.weights) == [1, 1, 2, 2]
    model.load_weights(tmp_path / "model.weights.h5")
    assert places(model.weights) == [1, 1, 2, 2]
    np.testing.assert_array_equal(model.predict(data.x, verbose=0), wanted)
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(data.x, verbose=0), wanted, rtol=1e-5, atol=1e-6)


def test_copies_of_weights_lie_beside_them_and_those_of_models_where_they_are_made(data):
    model = make_functional(APART)
    assert places(map(copy.deepcopy, model.layers[-1].weights)) == [2, 2]
    wanted = model.predict(data.x, verbose=0)
    for place, number in ((None, 0), ("/cpu:3", 3)):
        with tf.device(place):
            copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        for twin in copies:
            assert set(places(twin.weights)) == {number}
            np.testing.assert_allclose(twin.predict(data.x, verbose=0), wanted, rtol=1e-5, atol=1e-6)


def test_a_checkpoint_is_restored_to_the_devices(data, tmp_path):
    model = compile_model(make_sequential(APART))
    model.fit(*data.rows(16), verbose=0)
    path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(tmp_path / "saved"))
    before = [variable.numpy() for variable in model.variables]
    model.fit(*data.rows(16), verbose=0)
    tf.train.Checkpoint(model=model, optimizer=model.optimizer).restore(path)
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    model.fit(*data.rows(16), verbose=0)
    assert places(model.weights) == [1, 1, 2, 2] and set(places(model.optimizer.variables[2:])) == {1, 2}


def test_steps_in_one_call_run_stage_by_stage(data, stages):
    losses = []
    for devices in (APART, TOGETHER):
        model = compile_model(make_sequential(devices), "sgd", steps_per_execution=2)
        losses.append(model.fit(*data, batch_size=16, verbose=0, shuffle=False).history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-6)
    assert {1, 2} <= set(stages)


def test_a_model_that_is_fitted_in_a_scope_trains_all_the_same(data, stages):
    losses = []
    for place, devices, used in ((None, APART, {0, 1, 2}), ("/cpu:3", APART, {1, 2, 3}), ("/cpu:3", TOGETHER, set())):
        model = compile_model(make_functional(devices), "sgd")
        stages.clear()
        with tf.device(place):
            losses.append(model.fit(*data, batch_size=16, verbose=0, shuffle=False).history["loss"])
        assert set(stages) == used
        assert set(places(model.weights)) == {int(device[-1]) if device else 0 for device in devices}
    np.testing.assert_allclose(losses[1:], [losses[0]] * 2, rtol=1e-6)


def test_under_a_strategy_layers_lie_on_its_devices(data, strategy, stages):
    with strategy.scope():
        model = compile_model(make_functional(APART), "sgd")
    model.fit(*data, batch_size=16, verbose=0)
    assert not stages
    assert all(len(variable.value.devices()) == 4 for variable in model.weights)
