"""What `tf.distribute.experimental.partitioners` answer; `tests/parity` compares them with TensorFlow."""

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

partitioners = tf.distribute.experimental.partitioners
Fixed, Min, Max = (getattr(partitioners, f"{kind}Partitioner") for kind in ("FixedShards", "MinSize", "MaxSize"))


@pytest.mark.parametrize(
    ("partitioner", "shape", "dtype", "parts"),
    [
        (Fixed(3), [10, 3], "float32", [3, 1]),
        (Fixed(np.int64(30)), [10, 2], "float32", [10, 1]),
        (Min(4, 2), [6, 1], "float32", [2, 1]),
        (Min(4, 10), [6, 1], "float32", [6, 1]),
        (Min(10, 10), [6, 1], "float32", [3, 1]),
        (Min(), [1 << 20], "float64", [1]),
        (Min(max_shards=100), [1 << 18], "float32", [4]),
        (Min(4, 9), [0, 1], "float32", [1, 1]),
        (Max(4), [6, 1], "float32", [6, 1]),
        (Max(4, 2), [6, 1], "float32", [2, 1]),
        (Max(1024), [6, 1], "float32", [1, 1]),
        (Max(50), [5, 3], "float64", [3, 1]),
        (Max(4, bytes_per_string=2), [6, 1], "string", [3, 1]),
    ],
)
def test_parts_have_the_sizes_that_are_asked_for(partitioner, shape, dtype, parts):
    assert isinstance(partitioner, partitioners.Partitioner)
    assert partitioner(tf.TensorShape(shape), tf.as_dtype(dtype)) == parts


def test_another_axis_can_be_cut():
    assert Min(4, 3)(tf.TensorShape([6, 8]), tf.float32, axis=1) == [1, 3]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: Fixed("x"), TypeError, "num_shards.*'x'"),
        (lambda: Min(min_shard_bytes=0), ValueError, "`min_shard_bytes` must be positive. Received: 0"),
        (lambda: Min(max_shards=-1), ValueError, "`max_shards` must be positive. Received: -1"),
        (lambda: Max(4, max_shards=-1), ValueError, "`max_shards` must be positive"),
        (lambda: Max(4, bytes_per_string=0), ValueError, "`bytes_per_string` must be positive"),
        (lambda: Fixed(2)([4], tf.float32), AttributeError, r"give `tf.TensorShape"),
        (lambda: Max(2)([4], tf.float32), ValueError, r"give `tf.TensorShape"),
        (lambda: Fixed(2)(tf.TensorShape([None]), tf.float32), TypeError, "all sizes"),
        (lambda: Max(2)(tf.TensorShape([None]), tf.float32), ValueError, "all sizes"),
        (lambda: Fixed(2)(tf.TensorShape([]), tf.float32), IndexError, "axis 0"),
        (lambda: Min(2)(tf.TensorShape([3]), tf.float32, axis=1), ValueError, "axis 1"),
        (lambda: Max(2)(tf.TensorShape([0, 2]), tf.float32), ZeroDivisionError, "no elements"),
        (lambda: partitioners.Partitioner()(tf.TensorShape([3]), tf.float32), NotImplementedError, "define it"),
    ],
)
def test_what_does_not_fit_is_refused_as_by_tensorflow(call, error, text):
    with pytest.raises(error, match=text):
        call()
