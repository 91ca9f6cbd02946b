"""Models that Keras 2 has written: their configurations and files give what they gave there, and training goes on."""

import codecs
import importlib.util
import json
import marshal
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import h5py
import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow.keras._internals import serialization_lib
from tfdist_jax.compat.tensorflow.keras._legacy import _configs


def load_program(name):
    """Return a program of this folder as a module, whose TensorFlow is the facade."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[2] / f"programs/{name}.py")
    program = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, tensorflow=tf):
        spec.loader.exec_module(program)
    return program


PROGRAM = load_program("keras_2_files")
MODELS = json.loads((PROGRAM.FOLDER / "models.json").read_text())
LOSSES = json.loads((PROGRAM.FOLDER / "losses.json").read_text())


def without_modules(value):
    """Return a configuration as Keras before 2.13 wrote it."""
    if isinstance(value, list):
        return [without_modules(one) for one in value]
    if not isinstance(value, dict):
        return value
    gone = ("module", "registered_name", "build_config") if "class_name" in value else ()
    return {key: without_modules(one) for key, one in value.items() if key not in gone}


def name_of(model):
    """Return what a model is made of."""
    return "-".join(layer["class_name"] for layer in model["config"]["config"]["layers"][1:])


@pytest.mark.parametrize("model", MODELS, ids=name_of)
def test_configurations_compute_what_they_computed(model):
    read = tf.keras.models.model_from_json(json.dumps(model["config"]))
    PROGRAM.set_weights(read)
    shape, *sums = PROGRAM.summarize(read.predict(PROGRAM.INPUTS[model["inputs"]], verbose=0))
    assert shape == model["output"][0]
    np.testing.assert_allclose(sums, model["output"][1:], rtol=1e-4, atol=5e-4)


def test_configurations_without_modules_are_the_same():
    for model in MODELS:
        older, newer = (_configs.upgrade(form) for form in (without_modules(model["config"]), model["config"]))
        assert older == newer, name_of(model)


def test_configurations_of_keras_3_are_not_touched():
    hard = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, activation="hard_sigmoid")])
    again = tf.keras.models.model_from_json(hard.to_json())
    assert again.layers[0].activation is keras.activations.hard_sigmoid


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", LOSSES)
def test_training_goes_on_from_files(name, tmp_path):
    model = tf.keras.models.load_model(PROGRAM.FOLDER / name, custom_objects=PROGRAM.OWN)
    assert model.optimizer.iterations.numpy() == 3
    assert name.startswith("legacy") == (type(model.optimizer).__module__.endswith("_legacy_optimizers"))
    np.testing.assert_allclose(PROGRAM.train(model), LOSSES[name]["going_on"], rtol=1e-4)
    model.save(tmp_path / "model.keras")
    again = tf.keras.models.load_model(tmp_path / "model.keras", custom_objects=PROGRAM.OWN)
    x, y = PROGRAM.INPUTS["sequences"], PROGRAM.make_targets(model)
    found, expected = (one.evaluate(x, y, verbose=0, return_dict=True) for one in (again, model))
    assert expected.keys() == set(LOSSES[name]["names"])
    assert found == pytest.approx(expected, rel=1e-5)


def test_models_are_read_without_compiling():
    model = tf.keras.models.load_model(PROGRAM.FOLDER / "adam.h5", compile=False)
    assert getattr(model, "optimizer", None) is None


def test_a_state_that_does_not_fit_is_left_with_a_warning(tmp_path, caplog):
    file = tmp_path / "other.h5"
    file.write_bytes((PROGRAM.FOLDER / "adam.h5").read_bytes())
    with h5py.File(file, "a") as written:
        group = written["optimizer_weights"]
        group.attrs["weight_names"] = group.attrs["weight_names"][:-1]
    model = tf.keras.models.load_model(file)
    assert "begins anew" in caplog.text
    assert model.optimizer.iterations.numpy() == 0


def test_a_file_may_not_say_how_it_was_compiled(tmp_path, caplog):
    file = tmp_path / "other.h5"
    file.write_bytes((PROGRAM.FOLDER / "adam.h5").read_bytes())
    with h5py.File(file, "a") as written:
        del written.attrs["training_config"]
    assert not tf.keras.models.load_model(file).compiled
    assert "call `model.compile`" in caplog.text


def test_iterations_without_the_rest_of_the_state_are_left_with_a_warning(tmp_path, caplog):
    file = tmp_path / "other.h5"
    file.write_bytes((PROGRAM.FOLDER / "adam.h5").read_bytes())
    with h5py.File(file, "a") as written:
        group = written["optimizer_weights"]
        group.attrs["weight_names"] = group.attrs["weight_names"][:1]
    assert tf.keras.models.load_model(file).optimizer.iterations.numpy() == 0
    assert "begins anew" in caplog.text


def test_one_array_that_is_no_state_is_left_with_a_warning(tmp_path, caplog):
    file = tmp_path / "other.h5"
    file.write_bytes((PROGRAM.FOLDER / "adam.h5").read_bytes())
    with h5py.File(file, "a") as written:
        group = written["optimizer_weights"]
        group.attrs["weight_names"] = group.attrs["weight_names"][1:2]
    assert tf.keras.models.load_model(file).optimizer.iterations.numpy() == 0
    assert "begins anew" in caplog.text


def test_the_programs_own_losses_must_be_there():
    with pytest.raises(ValueError, match="Could not interpret loss identifier: error"):
        tf.keras.models.load_model(
            PROGRAM.FOLDER / "own.h5", custom_objects={name: PROGRAM.OWN[name] for name in ("double", "Largest")}
        )


def test_a_state_of_other_shapes_leaves_the_optimizer_as_it_was():
    optimizer, variable = keras.optimizers.Adam(), keras.Variable(np.zeros(3, "float32"))
    optimizer.build([variable])
    store = {"0": np.array(7), "1": np.ones(3), "2": np.ones(2)}
    with pytest.warns(UserWarning, match="Skipping variable loading"):
        optimizer.load_own_variables(store)
    assert int(optimizer.iterations.numpy()) == 0 and not np.any(optimizer.variables[2].numpy())


def test_weights_alone_are_no_model(tmp_path):
    with h5py.File(tmp_path / "weights.h5", "w") as file:
        file.attrs["keras_version"] = "2.4.0"
    with pytest.raises(ValueError, match=r"no configuration and weights.*load_weights"):
        tf.keras.models.load_model(tmp_path / "weights.h5")


def test_functional_models_of_the_programs_own_classes_compute_the_same():
    class Mine(keras.Model):
        pass

    shared = MODELS[-1]
    read = tf.keras.models.model_from_json(json.dumps(shared["config"] | {"class_name": "Mine"}), {"Mine": Mine})
    assert type(read) is Mine
    PROGRAM.set_weights(read)
    _, *sums = PROGRAM.summarize(read.predict(PROGRAM.INPUTS[shared["inputs"]], verbose=0))
    np.testing.assert_allclose(sums, shared["output"][1:], rtol=1e-4, atol=5e-4)


def test_models_of_the_programs_own_classes_are_read():
    class Scaled(keras.layers.Dense):
        def call(self, x):
            return 2 * super().call(x)

    config = {
        "class_name": "Sequential",
        "config": [{"class_name": "Scaled", "config": {"units": 1, "batch_input_shape": [None, 2]}}],
    }
    model = tf.keras.models.model_from_json(json.dumps(config), custom_objects={"Scaled": Scaled})
    assert type(model.layers[0]) is Scaled and model.input_shape == (None, 2)
    with pytest.raises(TypeError, match="Could not locate class 'Scaled'"):
        tf.keras.models.model_from_json(json.dumps(config))


@pytest.mark.parametrize(
    ("kind", "module"), [("LossScaleOptimizerV3", "keras.src"), ("LossScaleOptimizer", "tfdist_jax")]
)
def test_optimizers_that_scale_losses_are_those_of_keras_3(kind, module):
    inner = {"class_name": "Adam", "config": {"name": "Adam", "learning_rate": 0.5}}
    config = {"inner_optimizer": inner, "dynamic": True, "initial_scale": 8.0, "dynamic_growth_steps": 7}
    upgraded = _configs.upgrade({"optimizer_config": {"class_name": kind, "config": config}})["optimizer_config"]
    optimizer = keras.optimizers.deserialize(upgraded)
    assert type(optimizer) is keras.optimizers.LossScaleOptimizer and optimizer.initial_scale == 8.0
    assert type(optimizer.inner_optimizer).__module__.startswith(module)
    assert float(optimizer.inner_optimizer.learning_rate) == 0.5
    with pytest.raises(NotImplementedError, match="compile=False"):
        _configs.upgrade({"optimizer_config": {"class_name": kind, "config": {**config, "dynamic": False}}})


def test_registered_classes_are_read_by_their_full_name():
    @keras.saving.register_keras_serializable("mine")
    class Doubled(keras.layers.Layer):
        def call(self, x):
            return 2 * x

    layer = tf.keras.layers.deserialize({"class_name": "mine>Doubled", "config": {"name": "d"}})
    assert type(layer) is Doubled


@pytest.mark.parametrize(
    "form", [{"class_name": "gone>Dense"}, {"class_name": "Dense", "module": None, "registered_name": "gone>Dense"}]
)
def test_classes_that_are_not_there_are_not_taken_for_those_of_keras(form):
    with pytest.raises(TypeError, match="Could not locate class"):
        tf.keras.layers.deserialize({**form, "config": {"units": 1}})


@pytest.mark.parametrize(
    "where", ["os:getcwd", "builtins:eval", "tfdist_jax.compat.tensorflow.io.gfile:remove", "missing:name"]
)
def test_files_call_only_what_computes_tensors(where):
    config = {"class_name": "TFOpLambda", "registered_name": "tensorflow>TFOpLambda", "module": None}
    with pytest.raises(TypeError, match="functions of TensorFlow that compute tensors"):  # As Keras shows it.
        keras.saving.deserialize_keras_object({**config, "config": {"name": "a", "function": where}})


@pytest.mark.parametrize(
    ("kind", "function", "named"),
    [
        ("TFOpLambda", "sets.size", "`tf.sets.size`"),
        ("TFOpLambda", "__operators__.ne", "`tf.__operators__.ne`"),
        ("TensorFlowOpLayer", None, "TensorFlowOpLayer, m"),
    ],
)
def test_calls_of_what_is_not_there_are_refused(kind, function, named):
    layer = {"class_name": kind, "config": {"name": "m", "function": function}, "inbound_nodes": []}
    config = {
        "class_name": "Functional",
        "config": {"name": "m", "layers": [layer], "input_layers": [], "output_layers": []},
    }
    with pytest.raises(NotImplementedError, match=f"{named}.*load_weights"):
        tf.keras.models.model_from_json(json.dumps(config))


def test_recurrent_layers_older_than_the_choice_reset_before():
    layer = tf.keras.layers.deserialize({"class_name": "GRU", "config": {"units": 2}})
    assert layer.reset_after is False and keras.layers.GRU(2).reset_after is True


FACTOR = 3.0


def test_lambdas_in_files_run_with_the_names_of_their_module_if_the_program_asks_for_it():
    function = lambda x, by=2.0: x * by + FACTOR
    code = codecs.encode(marshal.dumps(function.__code__), "base64").decode("ascii")
    held = {"function": [code, [4.0], None], "function_type": "lambda", "module": __name__, "arguments": {}}
    config = {"class_name": "Lambda", "config": held}
    with pytest.raises(ValueError, match="lambda"):
        tf.keras.layers.deserialize(config)
    with (
        serialization_lib.SafeModeScope(False),
        mock.patch.dict(sys.modules, {__name__: SimpleNamespace(FACTOR=FACTOR)}),
    ):
        layer = tf.keras.layers.deserialize(config)
    assert float(layer(np.float32(1))) == 7.0
