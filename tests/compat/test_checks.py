"""Values that TensorFlow's kernels on CPU refuse: where they are looked at, and where not."""

import jax.numpy as jnp
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow._tensors._checks import missing_entry


def test_functions_do_not_look_at_values():
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])

    @tf.function
    def everything(index, zero):
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(index[None], x[:1])
        return tf.gather(x, index), tf.tensor_scatter_nd_add(x, index[None, None], x[:1]), loss, x[index], 7 % zero

    gathered, scattered, loss, row, _ = everything(tf.constant(5), tf.constant(0))
    np.testing.assert_array_equal(gathered, [0, 0])
    np.testing.assert_array_equal(scattered, x)
    np.testing.assert_array_equal(row, x[-1])
    assert np.isnan(loss.numpy()).all()


def test_indices_that_a_function_knows_while_it_is_traced_are_looked_at():
    x = tf.constant([1.0, 2.0])
    with pytest.raises(ValueError, match="slice index 5 of dimension 0 out of bounds"):
        tf.function(lambda x: x[5])(x)
    with pytest.raises(ValueError, match="Incompatible shapes"):
        tf.function(lambda x: x + tf.ones([3]))(x)


def test_infinite_numbers_that_were_there_are_no_singular_matrix():
    assert np.isnan(tf.linalg.solve([[1.0, 0.0], [0.0, 1.0]], [[np.nan], [1.0]]).numpy()).any()
    with pytest.raises(tf.errors.InvalidArgumentError, match="not invertible"):
        tf.linalg.solve([[1.0, 1.0], [1.0, 1.0]], [[1.0], [1.0]])


def test_message_says_which_index_and_how_many_entries_there_are():
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[1, 0\] = 7 is not in \[0, 2\)"):
        tf.gather([1, 2], [[0], [7]])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"= \[0, 3\] is not in"):
        tf.gather_nd(tf.ones([2, 3]), [[0, 3]])


@pytest.mark.parametrize(
    ("key", "good"),
    [
        ((0, 1), True),
        ((0, 1, 2), False),
        ((..., -3), True),
        ((..., -4), False),
        ((None, 1, None, 2), True),
        ((slice(None), 3), False),
        (np.int64(2), False),
        (jnp.asarray(1), True),
        (np.array([9]), True),  # Arrays are JAX's business.
    ],
)
def test_keys_of_a_matrix_are_checked_entry_by_entry(key, good):
    assert (missing_entry(key, (2, 3)) is None) == good
