"""Folders that are damaged, newer, or TensorFlow's own; functions that cannot be saved."""

import shutil
import subprocess
import sys

import damages
import pytest
from environment import LIMIT_S

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax._checkpoint import _checkpoint
from tfdist_jax.compat.tensorflow import keras

ANY = tf.TensorSpec([None], tf.float32)


class Scale(tf.Module):
    def __init__(self):
        super().__init__()
        self.factor = tf.Variable(2.0)

    @tf.function(input_signature=[ANY])
    def scale(self, x):
        return x * self.factor


@pytest.fixture
def saved(tmp_path):
    tf.saved_model.save(Scale(), tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", ["flip", "truncate", "remove"])
def test_a_damaged_file_is_named(saved, chaos, kind):
    file = damages.largest_of(saved / "saved_model")
    with chaos.damage(file, kind), pytest.raises(tf.errors.DataLossError, match=file.name):
        tf.saved_model.load(saved)
    assert tf.saved_model.load(saved).factor == 2.0


def test_a_part_that_is_gone_is_named(saved):
    shutil.rmtree(saved / "saved_model/arrays")
    assert tf.saved_model.contains_saved_model(saved)
    with pytest.raises(tf.errors.DataLossError, match="arrays"):
        tf.saved_model.load(saved)


def test_a_newer_version_is_refused_with_the_reason(tmp_path):
    about = {"format": "tfdist_jax.saved_model", "version": 2, "model": {}}
    _checkpoint.begin_saving(tmp_path / "saved_model", {}, about)()
    with pytest.raises(NotImplementedError, match=r"is of version 2, .* up to 1"):
        tf.saved_model.load(tmp_path)


def test_a_checkpoint_of_that_name_is_no_saved_model(tmp_path):
    tf.train.Checkpoint(v=tf.Variable(1.0)).write(tmp_path / "saved_model")
    with pytest.raises(ValueError, match="holds saved arrays, but no SavedModel"):
        tf.saved_model.load(tmp_path)


def test_tensorflows_own_says_how_to_read_its_variables(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"")
    assert tf.saved_model.contains_saved_model(tmp_path)
    with pytest.raises(NotImplementedError, match=r"TensorFlow's own.*load_checkpoint\('.*/variables/variables'\)"):
        tf.saved_model.load(tmp_path)


@pytest.mark.peers
def test_what_tensorflow_has_written_is_refused_and_its_variables_are_read(tmp_path):
    program = (
        "import sys, tensorflow as tf; m = tf.Module(); m.v = tf.Variable(3.0); tf.saved_model.save(m, sys.argv[1])"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, capture_output=True, timeout=LIMIT_S)
    with pytest.raises(NotImplementedError, match="TensorFlow's own"):
        tf.saved_model.load(tmp_path)
    reader = tf.train.load_checkpoint(tmp_path / "variables/variables")
    assert reader.get_tensor("v/.ATTRIBUTES/VARIABLE_VALUE") == 3.0


def test_other_files_in_the_folder_stay(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for value in (1.0, 2.0):
        module = Scale()
        module.factor.assign(value)
        tf.saved_model.save(module, tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine" and tf.saved_model.load(tmp_path).factor == 2.0


def _text(x):
    return tf.strings.length(x)


def _text_of_numbers(x):
    return tf.strings.as_string(x)


COUNTS = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)


_elements = iter(tf.data.Dataset.from_tensors(1.0).repeat())


def _taking(x):
    return x * next(_elements)


def _counting(x):
    COUNTS.insert(tf.constant([1], tf.int64), tf.constant([2], tf.int64))
    return x


def _printing(x):
    tf.print(x)
    return x


def _calling(x):
    return tf.numpy_function(lambda x: x, [x], tf.float32)


def _checking(x):
    tf.debugging.assert_positive(x)
    return x


def _unique(x):
    return tf.unique(x)[0]


def _by_size(x):
    return x if x.shape[0] > 2 else -x


STRINGS = tf.TensorSpec([None], tf.string)
REFUSED = [
    (_text, STRINGS, "strings or tables.*TextVectorization"),
    (_text_of_numbers, ANY, "strings"),
    (_counting, ANY, "strings or tables"),
    (_taking, ANY, "takes elements of an iterator.*Save a function of the elements"),
    (_printing, ANY, "tf.print"),
    (_calling, ANY, "tf.numpy_function"),
    (_checking, ANY, "leave the checks out"),
    (_unique, ANY, "one compiled program"),
    (_by_size, ANY, "the sizes that it needs in place of None"),
]


@pytest.mark.parametrize(("function", "spec", "why"), REFUSED)
def test_a_signature_that_no_program_can_serve_is_refused(tmp_path, function, spec, why):
    module = tf.Module()
    module.f = tf.function(function, input_signature=[spec])
    with pytest.raises(ValueError, match=rf"(?s)the signature 'serving_default' cannot be saved: .*{why}"):
        tf.saved_model.save(module, tmp_path, signatures=module.f)
    assert not tf.saved_model.contains_saved_model(tmp_path)


def test_another_function_is_left_out_with_a_warning_and_says_why_when_it_is_called(tmp_path, caplog):
    module = Scale()
    module.text = tf.function(_text, input_signature=[STRINGS])
    tf.saved_model.save(module, tmp_path, signatures=module.scale)
    assert "_text() is not saved for one of its signatures, since it computes with strings" in caplog.text
    loaded = tf.saved_model.load(tmp_path)
    assert loaded.scale([3.0]) == 6.0
    with pytest.raises(
        ValueError, match=r"Found zero restored functions.*It was not saved, since it computes with strings"
    ):
        loaded.text(tf.constant(["a"]))


def test_a_model_of_strings_says_what_to_save(tmp_path):
    layer = keras.layers.TextVectorization()
    layer.adapt(["a b c", "c d"])
    model = keras.Sequential([keras.Input([], dtype="string"), layer, keras.layers.Embedding(10, 2)])
    with pytest.raises(ValueError, match=r"the model behind its TextVectorization .*model.save\('name.keras'\)"):
        model.export(tmp_path, verbose=False)


def test_a_model_of_a_table_of_numbers_says_so(tmp_path):
    model = keras.Sequential([keras.Input([1], dtype="int64"), keras.layers.IntegerLookup(vocabulary=[1, 2])])
    with pytest.raises(ValueError, match="computes with strings or tables"):
        model.export(tmp_path, verbose=False)


def test_saving_inside_a_function_is_refused(tmp_path):
    save = tf.function(lambda: tf.saved_model.save(Scale(), tmp_path))
    with pytest.raises(AssertionError, match="not supported inside a traced"):
        save()


@pytest.mark.parametrize("option", ["experimental_skip_checkpoint", "experimental_load_function_aliases"])
def test_options_that_mean_something_else_are_refused(option):
    with pytest.raises(NotImplementedError, match=option):
        tf.saved_model.LoadOptions(**{option: True})
