"""Namespaces: every name loads, a missing one says what is nearest."""

import importlib
import re
import types

import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow._names import _missing
from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames, nearest_names
from tfdist_jax.compat.tensorflow._names._missing import reason

NAMES = sorted(tf.__getattr__.dotted_names())
PACKAGE = "tfdist_jax.compat.tensorflow"


def test_every_name_in_every_table_loads():
    for dotted in NAMES:
        value = tf
        for part in dotted.split(".")[1:]:
            value = getattr(value, part)
        assert value is not None or dotted == "tf.newaxis"
    assert len(NAMES) == len(set(NAMES)) > 600


def test_names_are_listed_without_loading():
    assert {"add", "nn", "Variable", "float32", "keras", "__name__"} <= set(dir(tf))
    assert "relu" in dir(tf.nn) and "add" not in dir(tf.nn)


@pytest.mark.parametrize(
    "name", ["math", "nn", "linalg", "random", "random.experimental", "io.gfile", "config.experimental"]
)
def test_namespaces_are_modules(name):
    module = importlib.import_module(f"{PACKAGE}.{name}")
    assert isinstance(module, types.ModuleType) and isinstance(module.__getattr__, LazyNames)


def test_loaded_name_is_kept():
    assert tf.nn.relu is tf.nn.relu and "relu" in vars(tf.nn)


def test_one_function_has_one_object_in_all_namespaces():
    assert tf.add is tf.math.add and tf.matmul is tf.linalg.matmul and tf.nn.swish is tf.nn.silu


@pytest.mark.parametrize(
    ("missing", "nearest"),
    [
        ("tf.log", "`tf.math.log`"),
        ("tf.reduce_std", "`tf.math.reduce_std`"),
        ("tf.math.relu", "`tf.nn.relu`"),
        ("tf.nn.sotfmax", "`tf.nn.softmax`"),
        ("tf.conccat", "`tf.concat`"),
    ],
)
def test_missing_name_says_so_and_names_the_nearest(missing, nearest):
    with pytest.raises(AttributeError) as raised:
        eval(missing)
    assert f"`{missing}` is not there (yet)" in str(raised.value) and nearest in str(raised.value)


def test_missing_name_without_anything_near_says_so_alone():
    with pytest.raises(AttributeError, match=r"does not provide this TensorFlow name\.$"):
        tf.zzzzzzzzzz  # noqa: B018
    assert nearest_names("tf.zzzzzzzzzz") == []


def test_importing_a_missing_name_says_the_same():
    with pytest.raises(ImportError, match=r"`tf\.nn\.sofmax` is not there .* `tf\.nn\.softmax`"):
        exec(f"from {PACKAGE}.nn import sofmax")
    with pytest.raises(ImportError, match=r"`tf\.log` is not there .* `tf\.math\.log`"):
        exec(f"from {PACKAGE} import log")


def test_missing_names_are_not_implemented():
    with pytest.raises(NotImplementedError, match=r"`tf\.math\.log`"):
        tf.log  # noqa: B018
    with pytest.raises(NotImplementedError, match=r"`tf\.nn\.softmax`"):
        exec(f"from {PACKAGE}.nn import sofmax")


def test_asking_for_a_missing_name_is_no_error():
    assert not hasattr(tf, "nonsense") and getattr(tf.nn, "nonsense", 3) == 3
    with pytest.raises(AttributeError, match="has no attribute '__nonsense__'"):
        tf.__nonsense__  # noqa: B018


@pytest.mark.parametrize(
    ("missing", "instead"),
    [
        ("tf.queue.FIFOQueue", "from_generator"),
        ("tf.saved_model.Asset", "tf.io.gfile.GFile"),
        ("tf.io.decode_proto", "protobuf"),
        ("tf.ragged_fill_empty_rows", "tf.sequence_mask"),
        ("tf.raw_ops.AddV2", "tf.add"),
        ("tf.placeholder", "guide/migrate"),
    ],
)
def test_missing_name_says_why_and_what_to_use(missing, instead):
    with pytest.raises(NotImplementedError, match="is not there .*: .*" + re.escape(instead)):
        eval(missing)


def test_reasons_are_for_names_that_are_not_there():
    # Of TensorFlow 1's names and of TensorFlow's own operations few are there.
    known = {name for name in NAMES if reason(name) and not name.startswith(("tf.compat.v1", "tf.raw_ops"))}
    assert not known, "These are there: take them out of _missing.py"


def test_what_reasons_recommend_is_there():
    for name in re.findall(r"`(tf\.[\w.]+)`", " ".join(_missing._NAMES)):
        if reason(name) is None:
            assert eval(name) is not None
