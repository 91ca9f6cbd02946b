"""Files that Keras would download, where there is no network."""

import hashlib

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow.keras._internals import file_utils

NOWHERE = "http://127.0.0.1:9/numbers.txt"


def test_error_says_where_the_file_belongs_and_then_it_is_read(tmp_path):
    text = b"1 2 3"
    get = lambda: tf.keras.utils.get_file(
        "numbers.txt", NOWHERE, cache_dir=tmp_path, file_hash=hashlib.sha256(text).hexdigest()
    )
    path = tmp_path / "datasets" / "numbers.txt"
    with pytest.raises(Exception, match=r"(?s)URL fetch failure.*put the file, unchanged, at .*KERAS_HOME") as raised:
        get()
    assert str(path) in str(raised.value)
    assert not path.exists()
    path.write_bytes(text)
    assert get() == str(path)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "cifar100", "imdb", "reuters"])
def test_every_data_set_says_so(name, monkeypatch, tmp_path):
    monkeypatch.setattr("keras.src.backend.config._KERAS_DIR", str(tmp_path))
    original = file_utils.urlretrieve
    # So that no test depends on a network, or on there being none.
    monkeypatch.setattr(file_utils, "urlretrieve", lambda url, *args: original(NOWHERE, *args))
    with pytest.raises(Exception, match=rf"put the file, unchanged, at {tmp_path}"):
        getattr(tf.keras.datasets, name).load_data()


def test_data_sets_read_local_files(monkeypatch, tmp_path):
    monkeypatch.setattr("keras.src.backend.config._KERAS_DIR", str(tmp_path))
    monkeypatch.setattr(
        file_utils, "validate_file", lambda *args, **kwargs: True
    )  # The true file is not there to be compared.
    images = np.arange(4 * 28 * 28).reshape(4, 28, 28).astype("u1")
    arrays = {"x_train": images, "y_train": np.arange(4), "x_test": images[:1], "y_test": np.arange(1)}
    (tmp_path / "datasets").mkdir()
    np.savez(tmp_path / "datasets" / "mnist.npz", **arrays)
    (x, y), (x_test, y_test) = tf.keras.datasets.mnist.load_data()
    for name, array in zip(arrays, (x, y, x_test, y_test), strict=True):
        np.testing.assert_array_equal(array, arrays[name])
