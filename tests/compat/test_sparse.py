"""`tf.SparseTensor` where sizes depend on values, and as arguments of functions."""

import jax
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

SPARSE = tf.SparseTensor([[0, 1], [1, 0]], [5.0, -2.0], [2, 3])
OF_UNKNOWN_SIZE = {
    "from_dense": lambda s: tf.sparse.from_dense(s.values),
    "retain": lambda s: tf.sparse.retain(s, s.values > 0),
    "slice": lambda s: tf.sparse.slice(s, [0, 0], [1, 1]),
    "add": lambda s: tf.sparse.add(s, s),
    "reset_shape": tf.sparse.reset_shape,
    "fill_empty_rows": lambda s: tf.sparse.fill_empty_rows(s, 0.0),
    "bincount": lambda s: tf.sparse.bincount(tf.cast(s.values, tf.int32)),
    "mask": lambda s: tf.sparse.mask(tf.IndexedSlices(s.values, s.indices[:, 0]), [0]),
}


@pytest.mark.parametrize("name", OF_UNKNOWN_SIZE)
def test_sizes_that_depend_on_values_are_refused_in_functions_with_what_to_do(name):
    with pytest.raises(NotImplementedError, match=rf"tf.sparse.{name}.*Call it outside of the function"):
        tf.function(OF_UNKNOWN_SIZE[name])(SPARSE)


def test_function_is_traced_once_for_sparse_tensors_of_one_size():
    traces = []

    @tf.function
    def total(given):
        traces.append(1)
        return tf.sparse.reduce_sum(given)

    assert total(SPARSE) == 3 and total(SPARSE.with_values([1.0, 2.0])) == 3 and len(traces) == 1
    assert total(tf.sparse.eye(3)) == 3 and len(traces) == 2


def test_shape_that_is_not_known_is_refused():
    with pytest.raises(NotImplementedError, match="dense_shape"):
        tf.function(lambda n: tf.SparseTensor([[0]], [1.0], n))(tf.constant([4], tf.int64))


def test_texts_and_other_shapes():
    texts = tf.sparse.to_dense(tf.SparseTensor([[0, 1]], ["a"], [1, 3]), "-")
    assert texts.numpy().tolist() == [[b"-", b"a", b"-"]]
    empty = tf.SparseTensor(np.zeros((0, 2)), np.zeros(0, "f4"), [2, 2])
    np.testing.assert_array_equal(tf.sparse.to_dense(empty), np.zeros((2, 2)))
    np.testing.assert_array_equal(tf.sparse.reduce_sum(empty, 0), [0, 0])


def test_jax_maps_over_the_parts():
    twice = jax.tree.map(lambda leaf: leaf * 2, SPARSE)
    assert twice.values.tolist() == [10.0, -4.0] and twice.shape == (2, 3)


def test_strings_are_put_together():
    parts = [tf.sparse.from_dense([["a", ""], ["", "b"]]), tf.sparse.from_dense([["c"], [""]])]
    assert tf.sparse.to_dense(tf.sparse.concat(1, parts), "").numpy().tolist() == [[b"a", b"", b"c"], [b"", b"b", b""]]
