"""`CentralStorageStrategy`: one copy of the variables, all devices compute."""

import jax
import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

Central = tf.distribute.experimental.CentralStorageStrategy
X = np.linspace(-1, 1, 22 * 64, dtype="f4").reshape(22, 64)


def make_model(strategy):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((64,)),
                keras.layers.Dense(32, "tanh"),
                keras.layers.BatchNormalization(),
                keras.layers.Dense(1),
            ]
        )
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return model


def fit(model):
    return model.fit(X, X[:, :1], batch_size=8, epochs=2, shuffle=False, verbose=0)


def train(strategy):
    model = make_model(strategy)
    return fit(model).history, model


def test_fit_is_that_of_mirrored_variables_with_an_uneven_batch_last():
    history, model = train(Central(["/cpu:0", "/cpu:1", "/cpu:2"], "/cpu:4"))
    expected, other = train(tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1", "/cpu:2"]))
    for name, values in expected.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-5)
    for one, another in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(one, another, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.predict(X, verbose=0), other.predict(X, verbose=0), rtol=1e-5, atol=1e-6)


def test_devices_that_compute_hold_nothing_between_steps():
    earlier = {id(array) for array in jax.live_arrays()}
    _, model = train(Central(["/cpu:0", "/cpu:1"], "/cpu:4"))
    variables = [*model.variables, *model.optimizer.variables]
    assert set.union(*(variable.stored.devices() for variable in variables)) == {jax.devices()[4]}
    shapes = {variable.shape for variable in variables if len(variable.shape) == 2}
    computing = {*jax.devices()[:2]}
    left = [a for a in jax.live_arrays() if id(a) not in earlier and a.shape in shapes and a.devices() & computing]
    assert shapes and not left


def test_a_training_is_saved_and_goes_on_under_another_strategy(tmp_path):
    _, model = train(Central(["/cpu:0", "/cpu:1"]))
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "ckpt"))
    model.save(tmp_path / "model.keras")
    saved, go_on = model.get_weights(), lambda model: fit(model).history["loss"]
    expected = go_on(model)
    for strategy in (
        Central(["/cpu:2", "/cpu:3"], "/cpu:2"),
        tf.distribute.MirroredStrategy(["/cpu:4", "/cpu:5"]),
    ):
        other = make_model(strategy)
        other.optimizer.build(other.trainable_variables)
        tf.train.Checkpoint(model=other).restore(path).assert_consumed()
        with strategy.scope():
            loaded = keras.models.load_model(tmp_path / "model.keras")
        for again in (other, loaded):
            for one, another in zip(saved, again.get_weights(), strict=True):
                np.testing.assert_array_equal(one, another)
            np.testing.assert_allclose(go_on(again), expected, rtol=1e-5)


def test_a_variable_assigned_from_another_one_keeps_its_value():
    strategy = Central(["/cpu:0", "/cpu:1"], "/cpu:1")
    with strategy.scope():
        a, b = tf.Variable(tf.ones([600, 600])), tf.Variable(tf.zeros([600, 600]))
    b.assign(a)
    strategy.run(tf.function(lambda: a.assign(a * 3.0)))
    assert float(b[0, 0]) == 1 and float(a[5, 5]) == 3


def test_a_missing_device_for_variables_is_told():
    with pytest.warns(UserWarning, match="no device '/gpu:3'"):
        strategy = Central(["/cpu:0", "/cpu:1"], "/gpu:3")
    assert strategy.extended.parameter_devices == ("/job:localhost/replica:0/task:0/device:CPU:0",)
    assert Central(["/cpu:2"]).extended.parameter_devices == ("/job:localhost/replica:0/task:0/device:CPU:2",)


@pytest.mark.parametrize("devices", ["/cpu:0", [], ()])
def test_devices_are_a_list_of_names(devices):
    with pytest.raises(ValueError, match="list of devices' names"):
        Central(devices)
