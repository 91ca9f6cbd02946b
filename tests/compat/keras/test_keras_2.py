"""Programs of Keras 2 find what they found under it, and are told once of each old form."""

import json
import re
import subprocess
import sys
from pathlib import Path

import environment
import numpy as np
import pytest
from environment import LIMIT_S

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.cli._name_status import find_status
from tfdist_jax.cli._tensorflow_uses import uses_of_program

PROGRAM = Path(__file__).parents[2] / "programs/keras_2_forms.py"
RECORDED = json.loads(PROGRAM.with_suffix(".json").read_text())


def leaves(value, path=""):
    """List the numbers and texts of nested lists and dictionaries, each with its place."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [leaf for key, one in items for leaf in leaves(one, f"{path}/{key}")]
    return [(path, value)]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What the programs find, and what is told."""
    folder = tmp_path_factory.mktemp("keras_2")
    command = [sys.executable, "-m", "tfdist_jax", "run", "--devices", "2", str(PROGRAM)]
    env = environment.clean(folder)
    ran = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, timeout=LIMIT_S, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.split("FOUND", 1)[1]), ran.stderr


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.slow("fifteen models train")
def test_programs_of_keras_2_find_what_they_found(found, name):
    mine, expected = leaves(found[0][name]), leaves(RECORDED[name])
    assert [path for path, _ in mine] == [path for path, _ in expected]
    for (path, value), (_, wanted) in zip(mine, expected, strict=True):
        if isinstance(wanted, float):
            np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=2e-5, err_msg=path)
        else:
            assert value == wanted, path


@pytest.mark.slow("fifteen models train")
def test_each_old_form_is_told_once(found):
    lines = [line for line in found[1].splitlines() if "Old form, understood: " in line]
    forms = [line.partition("understood: ")[2].partition(" in /")[0] for line in lines]
    assert len(forms) == len(set(forms)) > 10
    assert any("`optimizer.minimize`" in form for form in forms)
    assert all("keras_2_forms.py:" in line and "Today: " in line for line in lines)


# What the text of a program does not show: it depends on values.
HIDDEN = (
    *("on a symbolic tensor", "of a symbolic tensor", "a layer's name", "one list of metrics", "weights in a file"),
    *("that Keras 2 has written", 'history["lr"]'),
)


@pytest.mark.slow("fifteen models train")
def test_lint_shows_the_forms_that_are_told(found):
    """Compare lines, but of forms that are told later than where they are written."""
    uses = uses_of_program(PROGRAM.read_text(), str(PROGRAM))
    shown = {use.line for use in uses if find_status(use.name, use.keywords).kind == "older form"}
    told = re.findall(r"understood: (.*?) in /.*?keras_2_forms.py:(\d+) ", found[1])
    assert len(told) > 15
    hidden = {int(line) for form, line in told if not any(text in form for text in HIDDEN)} - shown
    lines = [PROGRAM.read_text().splitlines()[line - 1] for line in sorted(hidden)]
    where = ("super().__init__(", "model.fit(", "Halved(")  # Two classes of optimizers, and `period` of a callback.
    assert all(text in line for text, line in zip(where, lines, strict=True)), lines


def test_metric_without_name_is_refused_where_it_is_no_metrics_result():
    class Unnamed(tf.keras.layers.Layer):
        def call(self, inputs):
            self.add_metric(tf.reduce_mean(inputs))
            return inputs

    class Named(tf.keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.seen = tf.keras.metrics.Mean(name="seen")

        def call(self, inputs):
            self.add_metric(self.seen(inputs))
            return inputs

    with pytest.raises(ValueError, match="provide a name for your metric"):
        Unnamed()(tf.ones([2]))
    layer = Named()
    layer(tf.constant([1.0, 3.0]))
    assert float(layer.seen.result()) == 2.0


class Attending(tf.keras.layers.Layer):
    """As the layers of TensorFlow's transformer tutorials: `training` comes before the mask."""

    def __init__(self):
        super().__init__()
        self.dropout = tf.keras.layers.Dropout(0.5)
        self.steps = self.add_weight(name="steps", shape=(), initializer="zeros", trainable=False)

    def call(self, x, training, padding=None):
        self.add_update(self.steps.assign_add(1.0))
        x = self.dropout(x, training)
        return x if padding is None else x * padding


@pytest.mark.parametrize("compiled", [False, True])
def test_values_among_positional_arguments_are_taken_by_name(compiled):
    layer = Attending()
    call = tf.function(layer) if compiled else layer
    x, padding = tf.ones([4, 8]), tf.constant([[1.0], [0.0], [1.0], [1.0]])
    np.testing.assert_array_equal(call(x, False, padding), np.broadcast_to(padding, [4, 8]))
    assert set(np.unique(call(x, True, None))) == {0.0, 2.0}
    assert float(layer.steps) == 2.0
    with pytest.raises(ValueError, match="Only input tensors"):
        layer(x, False, padding, 3)
    with pytest.raises(ValueError, match="Only input tensors"):
        layer(x, False, training=True)


def test_values_among_positional_arguments_in_a_functional_model():
    inputs = tf.keras.Input(8)
    assert tuple(inputs.shape) == (None, 8)
    layer = Attending()
    model = tf.keras.Model(inputs, layer(inputs, False))
    np.testing.assert_array_equal(model(tf.ones([2, 8])), np.ones([2, 8]))


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_layers_of_nvidias_library_are_those_of_any_device(kind):
    from keras import layers

    layer = getattr(layers, f"CuDNN{kind}")(3, return_sequences=True)
    assert type(layer) is getattr(layers, kind)
    assert layer(np.ones([2, 4, 5], "float32")).shape == (2, 4, 3)


@pytest.mark.parametrize("kind", ["RandomHeight", "RandomWidth"])
def test_layers_that_draw_the_size_are_refused_where_they_draw(kind):
    layer = getattr(tf.keras.layers, kind)(0.2)
    images = np.ones([1, 4, 4, 3], "float32")
    np.testing.assert_array_equal(layer(images, training=False), images)
    with pytest.raises(NotImplementedError, match=f"{kind} draws the size.*RandomZoom"):
        layer(images, training=True)


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (lambda: tf.keras.layers.LocallyConnected1D(2, 3, padding="same"), NotImplementedError, "ZeroPadding"),
        (lambda: tf.keras.layers.LocallyConnected2D(2, (3,)), ValueError, "One number or 2"),
        (lambda: tf.keras.layers.LocallyConnected1D(2, 3).build((None, None, 4)), ValueError, "must be known"),
        (lambda: tf.keras.metrics.MeanTensor().result(), ValueError, "no shape before its first"),
        (lambda: tf.keras.metrics.MeanTensor(shape=(2,)).update_state([1.0]), ValueError, r"shape \(2,\), got \(1,\)"),
        (lambda: tf.keras.models.model_from_yaml("a: b"), RuntimeError, "to_json"),
        (lambda: tf.keras.utils.to_categorical(), TypeError, "got nothing"),
        (lambda: tf.keras.utils.to_categorical([1], 2, labels=3), TypeError, "labels"),
    ],
)
def test_what_the_older_forms_do_not_take_is_said(wrong, error, words):
    with pytest.raises(error, match=words):
        wrong()


def test_locally_connected_layers_with_channels_first_and_in_configurations():
    layer = tf.keras.layers.LocallyConnected2D(3, (2, 1), strides=(1, 2), kernel_regularizer="l2", activation="relu")
    images = np.random.default_rng(0).normal(size=(2, 4, 5, 2)).astype("float32")
    wanted = layer(images).numpy()
    config = {**layer.get_config(), "data_format": "channels_first"}
    first = tf.keras.layers.LocallyConnected2D.from_config(config)
    first.build((None, 2, 4, 5))
    first.set_weights(layer.get_weights())
    np.testing.assert_allclose(first(images.transpose(0, 3, 1, 2)).numpy().transpose(0, 2, 3, 1), wanted, rtol=1e-5)
    assert first.compute_output_shape((None, 2, 4, 5)) == (None, 3, 3, 3)
    assert len(layer.losses) == 1


def test_small_arguments_of_callbacks_and_images(tmp_path):
    keras = tf.keras
    image = np.full([4, 4, 3], 100.0)
    keras.utils.save_img(tmp_path / "image.png", image)
    assert keras.preprocessing.image.load_img(tmp_path / "image.png", grayscale=True).mode == "L"
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    callbacks = [
        keras.callbacks.BaseLogger(stateful_metrics=["a"]),
        keras.callbacks.ProgbarLogger("samples"),
        keras.callbacks.BackupAndRestore(tmp_path / "backup", save_before_preemption=True),
    ]
    history = model.fit(np.ones([4, 2]), np.ones([4, 1]), callbacks=callbacks, verbose=0)
    assert history.epoch == [0]


def test_loops_over_the_rows_of_symbolic_tensors():
    rows = tf.keras.Input((3,))
    doubled = tf.map_fn(lambda row: row * 2, rows)
    sums = tf.scan(lambda total, row: total + row, rows)
    model = tf.keras.Model(rows, [doubled, sums])
    assert model.output_shape == [(None, 3), (None, 3)]
    x = np.arange(12.0, dtype="float32").reshape(4, 3)
    for wanted, got in zip((2 * x, x.cumsum(0)), model.predict(x, verbose=0), strict=True):
        np.testing.assert_allclose(got, wanted)


@pytest.mark.parametrize("name", ["relu", "elu", "sigmoid", "tanh", "softmax", "linear", "hard_sigmoid"])
def test_activations_by_name_are_the_public_functions(name):
    """Compare them as programs do that look for layers with one."""
    assert tf.keras.layers.Dense(1, activation=name).activation is getattr(tf.keras.activations, name)


def test_serializing_takes_the_names_of_its_arguments():
    assert tf.keras.losses.deserialize(name="mse") is tf.keras.losses.mean_squared_error
    assert tf.keras.optimizers.serialize(optimizer=tf.keras.optimizers.SGD())["class_name"] == "SGD"


def model_with_loss():
    inputs = tf.keras.Input((2,))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs))
    model.add_loss(tf.reduce_mean(model.output))
    return model


def test_a_clone_on_inputs_of_another_model_that_adds_losses_is_refused():
    model, other = model_with_loss(), model_with_loss()
    with pytest.raises(ValueError, match="Clone without `input_tensors`"):
        tf.keras.models.clone_model(model, input_tensors=other.input)


def test_a_model_without_layers_has_no_names_of_outputs():
    model = tf.keras.Sequential()
    with pytest.raises(AttributeError, match="without layers"):
        _ = model.output_names
    model.add(tf.keras.layers.Dense(1, name="last"))
    assert model.output_names == ["last"]


def test_weights_of_outputs_that_are_not_there_are_refused():
    inputs = tf.keras.Input((2,))
    model = tf.keras.Model(inputs, [tf.keras.layers.Dense(1, name=name)(inputs) for name in ("a", "b")])
    model.compile("sgd", "mse")
    x, y = np.ones((4, 2), "f4"), np.ones((4, 1), "f4")
    data = tf.data.Dataset.from_tensor_slices((x, {"a": y, "b": y}, {"c": y[:, 0]})).batch(2)
    with pytest.raises(ValueError, match=r"'c'.*no outputs of the model: it has \['a', 'b'\]"):
        model.fit(data, verbose=0)


def test_a_model_that_a_shape_cannot_build_says_so():
    class Pair(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.layer = tf.keras.layers.Dense(1)

        def call(self, one, other):
            return self.layer(one) + self.layer(other)

    with pytest.warns(UserWarning, match="does not have a `build"):
        Pair().build((None, 2))


def test_histories_have_no_rates_unless_they_were_noted():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit(np.ones((2, 2)), np.ones((2, 1)), verbose=0).history
    with pytest.raises(KeyError, match="lr"):
        history["lr"]
    assert dict(history) == history and list(history) == ["loss"]


def test_results_of_metrics_are_converted_in_functions():
    class Sum(tf.keras.metrics.Metric):
        def __init__(self):
            super().__init__()
            self.sum = self.add_weight(shape=(), initializer="zeros", name="sum")

        def update_state(self, values, sample_weight=None):
            self.sum.assign_add(tf.reduce_sum(values))

        def result(self):
            if self.sum > 3.0:
                return self.sum
            return -self.sum

    metric = Sum()

    @tf.function
    def add(values):
        metric.update_state(values)
        return metric.result()

    assert [float(add(tf.constant([2.0]))) for _ in range(2)] == [-2.0, 4.0]
