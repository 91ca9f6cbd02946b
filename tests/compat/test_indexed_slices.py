import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax._stateful._served_program import make_program


def _slices(values=((1.0, 2.0), (3.0, 4.0)), indices=(2, 2), shape=(3, 2)):
    return tf.IndexedSlices(tf.constant(values), tf.constant(indices), shape)


def test_repeated_rows_add_up_in_the_tensor():
    assert tf.convert_to_tensor(_slices()).tolist() == [[0, 0], [0, 0], [4, 6]]


def test_without_a_shape_there_is_no_tensor():
    with pytest.raises(ValueError, match="dense_shape"):
        tf.convert_to_tensor(_slices(shape=None))


def test_slices_pass_through_compiled_functions_and_nest():
    doubled = tf.function(lambda s: s.with_values(s.values * 2))(_slices())
    assert doubled.values.tolist() == [[2, 4], [6, 8]]
    assert doubled.dense_shape.tolist() == [3, 2]
    assert len(tf.nest.flatten({"a": doubled})) == 1


@pytest.mark.parametrize(("op", "factor"), [("SUM", 1.0), ("MEAN", 0.5)])
def test_replicas_gather_slices_where_tensors_are_summed(op, factor):
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])

    @tf.function
    def reduced():
        def step():
            context = tf.distribute.get_replica_context()
            number = tf.cast(context.replica_id_in_sync_group, tf.float32) + 1.0
            slices = tf.IndexedSlices(tf.reshape(number, [1, 1]), tf.constant([1]), (3, 1))
            return context.all_reduce(op, {"sparse": slices, "dense": number})

        return strategy.run(step)

    found = strategy.experimental_local_results(reduced()["dense"])
    assert float(found[0]) == 3.0 * factor
    sparse = jax.tree.leaves(reduced()["sparse"])
    assert sorted(np.asarray(sparse[0]).reshape(-1).tolist()[:2]) == [1.0 * factor, 2.0 * factor]


def _temp_bytes(table_rows, optimizer=None):
    table = tf.Variable(tf.zeros([table_rows, 64]))

    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids) ** 2)
        gradient = tape.gradient(loss, table)
        if optimizer is None:
            table.scatter_sub(tf.IndexedSlices(gradient.values * 0.1, gradient.indices))
        else:
            optimizer.apply_gradients([(gradient, table)])
        return loss

    ids = jnp.arange(8)
    return make_program(step, [ids]).lower([ids]).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("make", [lambda: None, lambda: keras.optimizers.SGD(0.1)], ids=["scatter_sub", "SGD"])
def test_a_step_on_a_large_table_makes_no_gradient_of_its_size(make):
    assert _temp_bytes(1_000_000, make()) < 1_000_000


def test_custom_gradients_may_return_slices_and_take_them():
    @tf.custom_gradient
    def half(x):
        return x * 1.0, lambda up: up * 0.5

    table = tf.Variable([[1.0], [2.0]])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(half(tf.gather(table, [1, 1])))
    gradient = tape.gradient(loss, table)
    assert isinstance(gradient, tf.IndexedSlices)
    assert gradient.values.tolist() == [[0.5], [0.5]]
