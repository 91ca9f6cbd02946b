"""Folders of `OrbaxCheckpoint`: loaded as weights and as models, under other strategies and into models with other names."""

import pathlib

import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

LAYERS = [lambda: keras.layers.Dropout(0.3), keras.layers.BatchNormalization, lambda: keras.layers.Dense(3)]


def adam():
    return keras.optimizers.Adam(0.01)


@pytest.fixture
def saved(tmp_path, strategy, make_model, fit, data):
    """A model trained under four replicas, its folder of checkpoints, and how it trains on."""
    model = make_model(strategy, hidden=LAYERS, optimizer=adam)
    fit(model, data, callbacks=[keras.callbacks.OrbaxCheckpoint(tmp_path / "all", max_to_keep=None)])
    return model, tmp_path / "all"


def assert_equal_weights(model, expected):
    for mine, other in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, other)


def assert_equal_states(model, expected):
    assert_equal_weights(model, expected)
    for mine, other in zip(model.optimizer.variables, expected.optimizer.variables, strict=True):
        np.testing.assert_array_equal(mine.numpy(), other.numpy(), err_msg=mine.path)


@pytest.mark.parametrize("replicas", [4, 2, 0])
def test_weights_and_optimizer_come_back_under_any_strategy(replicas, saved, make_strategy, make_model, fit, data):
    model, folder = saved
    strategy = make_strategy(replicas) if replicas else None
    other = make_model(strategy, hidden=LAYERS, optimizer=adam)
    assert other.weights[0].path != model.weights[0].path
    other.load_weights(folder)
    assert_equal_states(other, model)
    assert len(other.weights[0].value.sharding.device_set) == max(replicas, 1)
    if replicas == 4:
        assert fit(other, data) == fit(model, data)


@pytest.mark.parametrize("inside", [True, False])
def test_a_model_trains_on_as_the_saved_one(inside, saved, strategy, fit, data):
    model, folder = saved
    if not inside:
        assert_equal_states(tf.keras.models.load_model(folder), model)
        return
    with strategy.scope():
        loaded = tf.keras.models.load_model(str(folder))
    assert_equal_states(loaded, model)
    assert fit(loaded, data) == fit(model, data)


def test_each_step_of_a_folder_can_be_loaded(saved, make_model, fit, data):
    model, folder = saved
    other = make_model(hidden=LAYERS, optimizer=adam)
    for step, batches in ((0, 4), (1, 8)):
        other.load_weights(folder / str(step))
        assert int(other.optimizer.iterations) == batches
        assert int(keras.models.load_model(folder / str(step)).optimizer.iterations) == batches
    assert_equal_weights(other, model)


def test_weights_alone_leave_the_optimizer_and_are_no_model(tmp_path, strategy, make_model, fit, data):
    model = make_model(strategy)
    folder = tmp_path / "weights"
    fit(model, data, callbacks=[keras.callbacks.OrbaxCheckpoint(folder, save_weights_only=True)])
    other = make_model(strategy)
    other.load_weights(folder)
    assert_equal_weights(other, model)
    assert int(other.optimizer.iterations) == 0
    with pytest.raises(ValueError, match="saved with `save_weights_only=True`"):
        keras.models.load_model(folder)


def test_another_optimizer_keeps_its_state_and_says_so(saved, make_model, caplog):
    model, folder = saved
    other = make_model(hidden=LAYERS)
    other.load_weights(folder)
    assert_equal_weights(other, model)
    assert int(other.optimizer.iterations) == 0 and f"optimizer {other.optimizer.name} keeps its state" in caplog.text


def test_another_model_is_refused(saved, make_model):
    model, folder = saved
    other = make_model(hidden=LAYERS[:2])
    before = other.get_weights()
    with pytest.raises(ValueError, match="is of another model: of this model's variables it lacks"):
        other.load_weights(folder)
    for mine, earlier in zip(other.get_weights(), before, strict=True):
        np.testing.assert_array_equal(mine, earlier)
    other.load_weights(folder, skip_mismatch=True)
    np.testing.assert_array_equal(other.get_weights()[0], model.get_weights()[0])


def test_a_model_with_models_inside_comes_back(tmp_path, fit, data):
    def make():
        inputs = keras.Input((8,))
        inner = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(4)])
        model = keras.Model(inputs, keras.layers.Dense(4)(inner(inputs)))
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    model, other = make(), make()
    fit(model, data, callbacks=[keras.callbacks.OrbaxCheckpoint(tmp_path / "nested", save_on_background=False)])
    other.load_weights(tmp_path / "nested")
    assert_equal_states(other, model)
    assert_equal_states(keras.models.load_model(tmp_path / "nested"), model)


@keras.saving.register_keras_serializable()
class Words(keras.layers.Layer):
    """A layer with an asset."""

    def __init__(self, **options):
        super().__init__(**options)
        self.words = []

    def call(self, x):
        return x

    def save_assets(self, folder):
        (pathlib.Path(folder) / "words.txt").write_text(" ".join(self.words))

    def load_assets(self, folder):
        self.words = (pathlib.Path(folder) / "words.txt").read_text().split()


def test_assets_come_back(tmp_path, make_model, fit, data):
    model = make_model(hidden=[Words])
    model.layers[1].words = ["one", "two"]
    fit(model, data, callbacks=[keras.callbacks.OrbaxCheckpoint(tmp_path / "words")])
    assert keras.models.load_model(tmp_path / "words").layers[1].words == ["one", "two"]


def test_other_folders_are_none_of_these(tmp_path, make_model):
    model = make_model()
    (tmp_path / "7").mkdir()
    with pytest.raises(tf.errors.NotFoundError, match="failed to find any checkpoint"):
        model.load_weights(tmp_path)
