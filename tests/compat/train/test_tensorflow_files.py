"""Checkpoints that real TensorFlow has written (`tensorflow_files/make_files.py`) are read as TensorFlow reads them."""

import json
import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

FILES = Path(__file__).parent / "tensorflow_files"
VALUES = json.loads((FILES / "values.json").read_text())
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


def value_of(path, name):
    """What TensorFlow reads, as an array."""
    noted = VALUES[path][name]
    if noted["dtype"] == "string":
        return np.array([bytes.fromhex(text) for text in noted["content"]], object).reshape(noted["shape"])
    dtype = np.dtype(getattr(ml_dtypes, noted["dtype"], noted["dtype"].removeprefix("q")))
    return np.frombuffer(bytes.fromhex(noted["content"]), dtype).reshape(noted["shape"])


@pytest.fixture
def files(tmp_path):
    """A copy of the files, to change."""
    return Path(shutil.copytree(FILES, tmp_path / "files"))


@pytest.mark.parametrize("path", sorted(VALUES))
def test_all_values_are_read_as_tensorflow_reads_them(path):
    reader = tf.train.load_checkpoint(str(FILES / path))
    types, shapes = reader.get_variable_to_dtype_map(), reader.get_variable_to_shape_map()
    assert shapes.keys() - {"_CHECKPOINTABLE_OBJECT_GRAPH"} == VALUES[path].keys()
    for name, noted in VALUES[path].items():
        value, wanted = reader.get_tensor(name), value_of(path, name)
        assert (types[name].name, shapes[name]) == (noted["dtype"], noted["shape"])
        assert np.asarray(value).dtype == wanted.dtype or noted["dtype"] == "string"
        np.testing.assert_array_equal(np.asarray(value, wanted.dtype), wanted)
    assert tf.train.list_variables(str(FILES / path)) == sorted(shapes.items())


def test_what_is_read_can_be_changed():
    value = tf.train.load_variable(str(FILES / "types"), f"types/float32{VALUE}")
    value += 1
    assert value.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_a_name_that_is_not_there_is_not_found():
    reader = tf.train.load_checkpoint(str(FILES / "types"))
    assert reader.has_tensor(f"types/int8{VALUE}") and not reader.has_tensor("types")
    with pytest.raises(tf.errors.NotFoundError, match="Key types not found in checkpoint"):
        reader.get_tensor("types")
    with pytest.raises(tf.errors.NotFoundError, match="failed to find any checkpoint"):
        tf.train.load_checkpoint(str(FILES / "nothing"))


@pytest.mark.parametrize("name", ["int8", "uint64", "bfloat16", "complex128", "bool"])
def test_variables_of_all_types_are_restored(name):
    wanted = value_of("types", f"types/{name}{VALUE}")
    variable = tf.Variable(np.zeros_like(wanted))
    tf.train.Checkpoint(types={name: variable}).read(str(FILES / "types")).assert_existing_objects_matched()
    np.testing.assert_array_equal(np.asarray(variable), wanted)


class Text(tf.train.experimental.PythonState):
    text = ""

    def serialize(self):
        return self.text

    def deserialize(self, string_value):
        self.text = string_value


def make_nested():
    module = tf.Module()
    module.weight = tf.Variable([0.0, 0.0])
    module.parts = [tf.Variable(0.0), {"a/b.c": tf.Variable(0.0), "pair": (tf.Variable(0.0), tf.Variable(0.0))}]
    shared = tf.Variable(0)
    parts = {"module": module, "text": Text(), "generator": tf.random.Generator.from_seed(1), "shared": shared}
    return tf.train.Checkpoint(**parts, again=[shared], nothing=[])


def test_objects_in_one_another_are_restored():
    checkpoint = make_nested()
    checkpoint.read(str(FILES / "nested")).assert_consumed()
    module = checkpoint.module
    first, named = module.parts
    assert module.weight.numpy().tolist() == [1, 2] and first.numpy() == 3 and checkpoint.shared.numpy() == 8
    assert [named["a/b.c"].numpy(), *(each.numpy() for each in named["pair"])] == [4, 5, 6]
    assert checkpoint.text.text == "a text" and checkpoint.again[0] is checkpoint.shared
    generator = tf.random.Generator.from_seed(7)
    generator.normal([5])
    np.testing.assert_array_equal(checkpoint.generator.state, generator.state)


def test_what_is_made_later_is_restored_then():
    checkpoint = tf.train.Checkpoint(module=tf.Module())
    status = checkpoint.read(str(FILES / "nested"))
    with pytest.raises(
        AssertionError, match=f"no variable has been made yet for generator/_state_var{VALUE}.* and 3 more"
    ):
        status.assert_consumed()
    checkpoint.module.weight = tf.Variable([0.0, 0.0])
    assert checkpoint.module.weight.numpy().tolist() == [1, 2]
    status.expect_partial()


def test_a_view_shows_the_objects():
    view = tf.train.CheckpointView(FILES / "nested")
    assert view.children(0).keys() == {"module", "text", "generator", "shared", "again", "nothing"}
    checkpoint = make_nested()
    matched, only_saved, only_here = view.diff(checkpoint)
    assert checkpoint.shared in matched.values() and only_here == [] and len(only_saved) == 1


def test_variables_in_several_files_and_in_parts_are_whole():
    variables = [tf.Variable(np.zeros(10, "f4")) for _ in range(4)]
    tf.train.Checkpoint(variables=variables).read(str(FILES / "shards")).assert_consumed()
    for i, variable in enumerate(variables):
        np.testing.assert_array_equal(variable, np.arange(10, dtype="f4") + i)
    assert tf.train.load_variable(str(FILES / "names"), "parts").shape == (7, 5)


def test_variables_are_restored_by_their_names_where_nothing_else_is_saved():
    weight, count = tf.Variable([0.0, 0.0], name="weight"), tf.Variable(0, name="layer/count")
    checkpoint = tf.train.Checkpoint(w=weight, c=[count])
    checkpoint.restore(str(FILES / "names")).assert_consumed().assert_existing_objects_matched()
    assert weight.numpy().tolist() == [1, 2] and count.numpy() == 3
    with pytest.raises(AssertionError, match=r"No values were found in checkpoint .*names for other"):
        tf.train.Checkpoint(w=weight, other=tf.Variable(1, name="x")).restore(str(FILES / "names")).assert_consumed()


def test_another_dtype_or_shape_is_an_error_of_tensorflows():
    with pytest.raises(ValueError, match=r"incompatible tensor with shape \(2,\).*shape \(3,\)"):
        tf.train.Checkpoint(module=_holding([0.0, 0.0, 0.0])).read(str(FILES / "nested"))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"dtype float32 .* whose dtype is int32"):
        tf.train.Checkpoint(module=_holding([0, 0])).read(str(FILES / "nested"))


def _holding(value):
    module = tf.Module()
    module.weight = tf.Variable(value)
    return module


def test_the_first_format_is_refused_with_the_way_around(tmp_path):
    shutil.copy(FILES / "names.index", tmp_path / "one")  # A single table, as that format is.
    with pytest.raises(NotImplementedError, match=r"first of TensorFlow's formats.*save it anew"):
        tf.train.load_checkpoint(tmp_path / "one")


def test_names_of_any_letters_are_found(tmp_path):
    folder = tmp_path / "mit Umläuten"
    folder.mkdir()
    for file in FILES.glob("shards.*"):
        shutil.copy(file, folder / file.name.replace("shards", "größe"))
    # As TensorFlow writes them.
    (folder / "checkpoint").write_text('model_checkpoint_path: "gr\\303\\266\\303\\237e"\n')
    assert tf.train.latest_checkpoint(folder) == str(folder / "größe")
    tf.train.Checkpoint(variables=[tf.Variable(np.zeros(10, "f4"))]).read(str(folder / "größe")).expect_partial()


def test_the_place_of_an_iterator_is_refused_with_the_way_around():
    step, path = tf.Variable(0), str(FILES / "iterator")
    tf.train.Checkpoint(step=step).read(path).expect_partial()
    assert step.numpy() == 1
    with pytest.raises(NotImplementedError, match=r"only TensorFlow can read.*dataset\.skip"):
        tf.train.Checkpoint(step=step, iterator=iter(tf.data.Dataset.range(5))).read(path)
    with pytest.raises(NotImplementedError, match="type 21, whose values only TensorFlow can read"):
        tf.train.load_variable(path, "iterator/.ATTRIBUTES/ITERATOR_STATE")


def make_dense_model():
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input((3,)),
            layers.Dense(4, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.2),
            layers.Dense(1),
        ]
    )


def assert_holds(model, optimizer, path, layer, slots):
    """Compare weights and what Adam keeps with what is noted."""
    kernels, biases = [model.layers[i].kernel for i in (0, 3)], [model.layers[i].bias for i in (0, 3)]
    norm = model.layers[1]
    trained = [kernels[0], biases[0], norm.gamma, norm.beta, kernels[1], biases[1]]
    for variable, name in zip(trained, layer, strict=True):
        np.testing.assert_array_equal(variable, value_of(path, name))
    places = {id(variable): i for i, variable in enumerate(model.trainable_variables)}
    for i, variable in enumerate(trained):
        for kept, name in zip((optimizer._momentums, optimizer._velocities), slots, strict=True):
            np.testing.assert_array_equal(kept[places[id(variable)]], value_of(path, name(i)))
    assert optimizer.iterations.numpy() == 2
    np.testing.assert_allclose(optimizer.learning_rate, 0.01)


KERAS_3 = [f"optimizer/_trainable_variables/{i}{VALUE}" for i in range(6)]
KERAS_2 = [
    f"model/layer_with_weights-{name}{VALUE}"
    for name in ("0/kernel", "0/bias", "1/gamma", "1/beta", "2/kernel", "2/bias")
]


@pytest.mark.parametrize("is_built", [True, False])
@pytest.mark.parametrize(("path", "layer", "first"), [("keras_3/ckpt-2", KERAS_3, 2), ("keras_2/ckpt-2", KERAS_2, 1)])
def test_a_model_and_its_optimizer_go_on_where_tensorflow_has_stopped(path, layer, first, is_built):
    model = make_dense_model()
    model.compile(tf.keras.optimizers.Adam(0.5), "mse")
    if is_built:
        model.optimizer.build(model.trainable_variables)
    step = tf.Variable(0)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer, step=step)
    status = checkpoint.restore(str(FILES / path))
    if not is_built:
        model.optimizer.build(model.trainable_variables)
    status.assert_consumed()
    assert step.numpy() == checkpoint.save_counter.numpy() == 2
    slots = [lambda i, k=k: f"optimizer/_variables/{first + 2 * i + k}{VALUE}" for k in (0, 1)]
    assert_holds(model, model.optimizer, path, layer, slots)
    model.fit(np.zeros((4, 3)), np.zeros((4, 1)), verbose=0)
    assert model.optimizer.iterations.numpy() == 3


@pytest.mark.parametrize("is_built", [True, False])
def test_slots_of_older_optimizers_are_restored(is_built):
    model, optimizer = make_dense_model(), tf.keras.optimizers.Adam(0.5)
    if is_built:
        optimizer.build(model.trainable_variables)
    status = tf.train.Checkpoint(model=model, optimizer=optimizer).read(str(FILES / "slots"))
    if not is_built:
        optimizer.build(model.trainable_variables)
    status.assert_existing_objects_matched()
    with pytest.raises(AssertionError, match=rf"optimizer/beta_1{VALUE}.*optimizer/decay{VALUE}\.$"):
        status.assert_consumed()
    status.expect_partial()
    slots = [lambda i, k=k: KERAS_2[i].replace(VALUE, f"/.OPTIMIZER_SLOT/optimizer/{k}{VALUE}") for k in "mv"]
    assert_holds(model, optimizer, "slots", KERAS_2, slots)


@pytest.mark.parametrize("path", ["keras_2/ckpt-2", "slots"])
def test_what_optimizers_of_keras_2_keep_is_found_by_name(path):
    """The order of variables in Keras 2 need not be that of Keras 3."""
    model, optimizer = make_dense_model(), tf.keras.optimizers.Adam(0.5)
    optimizer.build(model.trainable_variables[::-1])
    tf.train.Checkpoint(model=model, optimizer=optimizer).restore(str(FILES / path)).expect_partial()
    names = [f"optimizer/_variables/{i}{VALUE}" for i in range(1, 13, 2)]
    if path == "slots":
        names = [name.replace(VALUE, f"/.OPTIMIZER_SLOT/optimizer/m{VALUE}") for name in KERAS_2]
    for kept, name in zip(optimizer._momentums[::-1], names, strict=True):
        np.testing.assert_array_equal(kept, value_of(path, name))


def test_weights_of_keras_2_are_loaded():
    model = make_dense_model()
    model.load_weights(FILES / "weights").expect_partial().assert_existing_objects_matched()
    for name, variable in (("0/kernel", model.layers[0].kernel), ("1/moving_mean", model.layers[1].moving_mean)):
        np.testing.assert_array_equal(variable, value_of("weights", f"layer_with_weights-{name}{VALUE}"))


def test_a_manager_goes_on_in_a_folder_of_tensorflows(files):
    folder = files / "keras_3"
    assert tf.train.latest_checkpoint(folder) == str(folder / "ckpt-2")
    assert list(tf.train.checkpoints_iterator(folder, timeout=0)) == [str(folder / "ckpt-2")]
    step = tf.Variable(0)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(step=step), folder, max_to_keep=1)
    assert manager.checkpoints == [str(folder / "ckpt-2")] == [manager.restore_or_initialize()] and step.numpy() == 2
    assert manager.save() == manager.latest_checkpoint == str(folder / "ckpt-3")
    assert sorted(file.name for file in folder.iterdir()) == ["checkpoint", "ckpt-3"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda files: (files / "ckpt-2.data-00000-of-00001").unlink(), r"ckpt-2\.data-00000-of-00001 is gone"),
        (
            lambda files: _flip(files / "ckpt-2.data-00000-of-00001"),
            r"data-00000-of-00001 is damaged: bytes \d+ to \d+ do not hold",
        ),
        (lambda files: _flip(files / "ckpt-2.index"), r"ckpt-2\.index is damaged at byte 0: expected a block"),
    ],
    ids=["gone", "data", "index"],
)
def test_a_damaged_checkpoint_is_passed_over_or_refused(files, caplog, damage, message):
    folder = files / "keras_3"
    for file in sorted(folder.glob("ckpt-2*")):
        shutil.copy(file, folder / file.name.replace("ckpt-2", "ckpt-1"))
    state = (folder / "checkpoint").read_text()
    (folder / "checkpoint").write_text(f'all_model_checkpoint_paths: "ckpt-1"\n{state}')
    damage(folder)
    with pytest.raises(tf.errors.DataLossError, match=f"{message}.*ckpt-1 is whole"):
        tf.train.Checkpoint(model=make_dense_model()).restore(str(folder / "ckpt-2"))
    assert tf.train.latest_checkpoint(folder) == str(folder / "ckpt-1")
    assert "Going back to" in caplog.text


def _flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 4] ^= 1
    file.write_bytes(content)


def test_all_types_are_checked_for_damage():
    for path in (*VALUES, "iterator"):
        assert tf.train.load_checkpoint(str(FILES / path))._saved._reader.check() is None
