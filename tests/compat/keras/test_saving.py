"""Files of models: complete or untouched, under names with and without suffix, with optimizer and dropout."""

import jax
import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow.keras._internals import saving_lib

pytestmark = pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5")


def adam():
    return keras.optimizers.Adam(0.01)


def dropout():
    return keras.layers.Dropout(0.3)


def assert_equal_variables(model, expected):
    for mine, other in zip(model.variables, expected.variables, strict=True):
        np.testing.assert_array_equal(mine.numpy(), other.numpy(), err_msg=mine.path)
    for mine, other in zip(model.optimizer.variables, expected.optimizer.variables, strict=True):
        np.testing.assert_array_equal(mine.numpy(), other.numpy(), err_msg=mine.path)


@pytest.mark.parametrize("name", ["m.keras", "folder"])
@pytest.mark.parametrize("inside", [True, False])
def test_loaded_model_trains_on_as_the_saved_one(name, inside, tmp_path, strategy, make_model, fit, data):
    model = make_model(strategy, hidden=[dropout], optimizer=adam)
    fit(model, data)
    model.save(tmp_path / name)
    if not inside:
        loaded = keras.models.load_model(tmp_path / name)
        assert_equal_variables(loaded, model)
        return
    with strategy.scope():
        loaded = tf.keras.models.load_model(tmp_path / name)
    assert all(len(weight.value.sharding.device_set) == 4 for weight in loaded.weights)
    assert fit(loaded, data) == fit(model, data)
    assert_equal_variables(loaded, model)


@pytest.mark.parametrize("optimizer", [adam, lambda: keras.optimizers.SGD(0.1, momentum=0.9, use_ema=True)])
def test_a_model_in_hdf5_trains_on_as_the_saved_one(optimizer, tmp_path, strategy, make_model, fit, data):
    model = make_model(strategy, optimizer=optimizer)
    fit(model, data)
    model.save(tmp_path / "m.h5")
    with strategy.scope():
        loaded = keras.models.load_model(tmp_path / "m.h5")
    assert_equal_variables(loaded, model)
    assert fit(loaded, data) == fit(model, data)
    assert_equal_variables(loaded, model)


def test_weights_of_another_optimizer_change_nothing(make_model, fit, data):
    model, other = make_model(optimizer=adam), make_model(optimizer=adam, hidden=[dropout])
    fit(model, data)
    before = model.optimizer.get_weights()
    other.optimizer.build(other.trainable_variables[::-1])
    with pytest.raises(ValueError, match="same kind of optimizer"):
        model.optimizer.set_weights(other.optimizer.get_weights())
    for mine, expected in zip(model.optimizer.get_weights(), before, strict=True):
        np.testing.assert_array_equal(mine, expected)


def test_weights_without_suffix_are_a_checkpoint(tmp_path, strategy, make_model, fit, data):
    model = make_model(strategy)
    fit(model, data)
    model.save_weights(tmp_path / "ckpt")
    path = tf.train.latest_checkpoint(tmp_path)
    assert path == str(tmp_path / "ckpt")
    other = make_model(strategy)
    other.load_weights(path).expect_partial()
    for mine, expected in zip(other.weights, model.weights, strict=True):
        np.testing.assert_array_equal(mine.numpy(), expected.numpy())


@pytest.mark.parametrize("name", ["m.keras", "m.weights.h5", "m.h5"])
def test_failure_while_writing_leaves_the_old_file(name, tmp_path, make_model, monkeypatch):
    model, path = make_model(), tmp_path / name
    save = model.save_weights if "weights" in name else model.save
    save(path)
    before = path.read_bytes()

    def fail(*args, **kwargs):
        raise OSError("No space left on device")

    model.set_weights([weight + 1 for weight in model.get_weights()])
    monkeypatch.setattr("tfdist_jax.compat.tensorflow.keras._saving._seal.put_on_disk", fail)
    with pytest.raises(OSError, match="No space"):
        save(path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == [name]
    assert saving_lib.save_model.__wrapped__ is not None


def test_clone_lies_on_the_strategys_devices(strategy, make_model):
    with strategy.scope():
        clone = keras.models.clone_model(make_model(strategy))
    assert all(weight.value.sharding.device_set == set(jax.devices()[:4]) for weight in clone.weights)


def test_signatures_are_refused(tmp_path, make_model):
    with pytest.raises(NotImplementedError, match="export"):
        make_model().save(tmp_path / "m", signatures={})


def test_a_model_that_was_written_to_hdf5_keeps_its_optimizer(tmp_path, make_model, fit, data):
    model = make_model(optimizer=adam)
    fit(model, data)
    for name in ("first.h5", "then.keras", "last.h5"):
        model.save(tmp_path / name)
        loaded = keras.models.load_model(tmp_path / name)
        assert type(loaded.optimizer) is keras.optimizers.Adam
        assert_equal_variables(loaded, model)


@pytest.mark.parametrize(
    ("module", "made"),
    [
        (keras.losses, keras.losses.Huber(delta=0.25)),
        (keras.losses, keras.losses.CosineSimilarity(axis=0)),
        (keras.losses, keras.losses.SparseCategoricalCrossentropy(axis=0)),
        (keras.metrics, keras.metrics.CosineSimilarity(axis=0)),
    ],
)
def test_arguments_that_keras_leaves_out_are_saved(module, made):
    again = module.deserialize(module.serialize(made))
    assert type(again) is type(made) and again._fn_kwargs == made._fn_kwargs
    assert again.get_config() == made.get_config()


def test_a_class_of_the_programs_own_need_not_take_the_arguments_of_keras():
    class Tolerant(keras.losses.Huber):
        def __init__(self, name="tolerant", reduction="sum"):
            super().__init__(delta=5.0, name=name, reduction=reduction)

    assert Tolerant.from_config(Tolerant().get_config())._fn_kwargs == {"delta": 5.0}


def test_the_identity_is_saved_with_its_gain():
    gain = keras.initializers.Identity(3.0)
    again = keras.initializers.deserialize(keras.initializers.serialize(gain))
    np.testing.assert_array_equal(again((2, 2)), 3 * np.eye(2))


def test_operators_and_the_programs_own_losses_are_read_from_hdf5(tmp_path):
    def doubled(y_true, y_pred):
        return 2 * keras.ops.mean(keras.ops.square(y_true - y_pred), axis=-1)

    inputs = keras.Input((2,))
    model = keras.Model(inputs, keras.layers.Dense(1)(1.0 - inputs * inputs))
    model.compile("sgd", doubled, metrics=["mae", doubled])
    x, y = np.ones((4, 2), "float32"), np.ones((4, 1), "float32")
    expected = model.evaluate(x, y, verbose=0, return_dict=True)
    model.save(tmp_path / "model.h5")
    loaded = keras.models.load_model(tmp_path / "model.h5", custom_objects={"doubled": doubled})
    assert loaded.evaluate(x, y, verbose=0, return_dict=True) == pytest.approx(expected)
