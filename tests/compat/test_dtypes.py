"""Element types: one object for each, equal to NumPy's, JAX's and Keras's ways to write it."""

import copy
import pickle

import jax.numpy as jnp
import keras
import ml_dtypes
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow._tensors import _dtypes

NUMBERS = [dtype for dtype in _dtypes._ALL if dtype is not tf.string]


@pytest.mark.parametrize("dtype", _dtypes._ALL, ids=str)
def test_dtype_equals_numpys_both_ways_and_no_other(dtype):
    for other in _dtypes._ALL:
        assert (dtype == other.dtype) is (dtype is other)
        assert (other.dtype == dtype) is (dtype is other)
    assert hash(dtype) == hash(dtype.dtype)
    assert dtype == dtype.name == dtype
    assert dtype not in ("nonsense", None)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_dtype_is_taken_by_numpy_jax_and_keras(dtype):
    scalar = getattr(jnp, {"bool": "bool_"}.get(dtype.name, dtype.name))
    assert scalar == dtype and dtype == scalar
    assert np.zeros(2, dtype).dtype == dtype
    assert jnp.zeros(2, dtype).dtype == dtype
    assert jnp.ones(2).astype(dtype).dtype == dtype
    assert keras.backend.standardize_dtype(dtype) == dtype.name


def test_dtypes_know_their_kind():
    assert tf.bfloat16.is_floating and tf.half.is_floating and not tf.int8.is_floating
    assert tf.uint8.is_integer and tf.uint8.is_unsigned and not tf.bool.is_integer
    assert tf.bool.is_bool and tf.complex64.is_complex and tf.complex64.real_dtype is tf.float32
    assert tf.float64.is_numeric and not tf.string.is_numeric
    assert not tf.float32.is_quantized and tf.float32.is_numpy_compatible


def test_dtypes_know_their_range():
    assert (tf.int8.min, tf.int8.max, tf.int16.size) == (-128, 127, 2)
    assert tf.bfloat16.max == ml_dtypes.finfo("bfloat16").max
    assert tf.float32.limits == (0, 1) and tf.uint8.limits == (0, 255) and tf.bool.limits == (0, True)
    with pytest.raises(TypeError, match="Cannot find minimum value"):
        tf.bool.min  # noqa: B018
    with pytest.raises(ValueError, match="does not have defined limits"):
        tf.complex64.limits  # noqa: B018


@pytest.mark.parametrize(
    ("written", "dtype"),
    [
        (float, tf.float32),
        (bool, tf.bool),
        (object, tf.string),
        ("half", tf.float16),
        ("double", tf.float64),
        (1, tf.float32),
        (np.float64, tf.float64),
        (np.dtype("int8"), tf.int8),
        (np.str_, tf.string),
        (jnp.bfloat16, tf.bfloat16),
        (ml_dtypes.bfloat16, tf.bfloat16),
    ],
)
def test_dtype_has_many_names(written, dtype):
    assert tf.as_dtype(written) is dtype


@pytest.mark.parametrize("value", [int, str, complex, None, "f4", 999, np.ones(2), jnp.ones(2), np.dtype("datetime64")])
def test_other_values_are_no_dtype(value):
    with pytest.raises(TypeError, match="to a TensorFlow DType"):
        tf.as_dtype(value)


def test_dtype_is_written_as_by_tensorflow():
    assert (repr(tf.float32), str(tf.float32), int(tf.int64)) == ("tf.float32", "<dtype: 'float32'>", 9)


def test_dtype_survives_copies():
    assert pickle.loads(pickle.dumps(tf.int8)) is tf.int8
    assert copy.deepcopy(tf.int8) is tf.int8


def test_dtype_has_numpys_attributes_too():
    assert tf.float32.kind == "f"
    with pytest.raises(AttributeError):
        tf.float32.nonsense  # noqa: B018


@pytest.mark.parametrize("dtype", [tf.int8, tf.uint8, tf.int32, tf.int64])
def test_places_are_counted_beyond_a_small_type(dtype):
    numbers = tf.constant([1, 100], dtype)
    assert tf.where(tf.one_hot(numbers, 400)).numpy().tolist() == [[0, 1], [1, 100]]
    assert tf.math.count_nonzero(tf.sequence_mask(numbers, 400), 1).numpy().tolist() == [1, 100]
    assert tf.sequence_mask(numbers).shape == (2, 100)
    assert tf.sequence_mask(numbers[:0]).shape == (0, 0)
