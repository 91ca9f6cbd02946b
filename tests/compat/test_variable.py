import copy
import pickle

import jax
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf


def test_a_variable_holds_what_was_assigned():
    v = tf.Variable([1.0, 2.0])
    v.assign_add([1.0, 1.0])
    v.assign_sub([0.5, 0.5])
    assert v.numpy().tolist() == [1.5, 2.5]
    assert v.assign([3.0, 4.0]) is v


def test_an_assigned_variable_shares_nothing_with_its_source():
    a, b = tf.Variable([1.0]), tf.Variable([2.0])
    b.assign(a)
    step = tf.function(lambda: a.assign_add([1.0]))
    step()
    step()
    assert (a.numpy().tolist(), b.numpy().tolist()) == ([3.0], [1.0])


def test_a_value_read_earlier_survives_a_step_that_reuses_memory():
    v = tf.Variable([1.0, 2.0])
    old, copy = v.value(), v.numpy()
    step = tf.function(lambda: v.assign_add([1.0, 1.0]))
    for _ in range(3):
        step()
    assert (np.asarray(old).tolist(), copy.tolist()) == ([1.0, 2.0], [1.0, 2.0])


def test_arithmetic_comparison_and_indexing_use_the_value():
    v = tf.Variable([1.0, 2.0, 3.0])
    assert (2 * v + v - 1).tolist() == [2.0, 5.0, 8.0]
    assert (v > 1.5).tolist() == [False, True, True]
    assert (v**2 / v).tolist() == [1.0, 2.0, 3.0]
    assert (-v).tolist() == [-1.0, -2.0, -3.0]
    assert v[1:].tolist() == [2.0, 3.0]
    assert (v == v).all()
    with pytest.raises(TypeError):
        len(v)


def test_a_wrong_shape_is_refused_with_both_shapes():
    with pytest.raises(ValueError, match=r"variable shape \(2,\), and the assigned value shape \(3,\)"):
        tf.Variable([1.0, 2.0]).assign([1.0, 2.0, 3.0])


def test_a_variable_needs_an_initial_value():
    with pytest.raises(ValueError, match="initial_value"):
        tf.Variable()


def test_types_are_kept():
    assert tf.Variable(1).dtype == tf.int32
    assert tf.Variable(1.0).dtype == tf.float32
    assert tf.Variable(np.float64(1)).dtype == tf.float64
    assert tf.Variable(1, dtype=tf.int64).dtype == tf.int64


def test_variables_are_keys_by_reference_only():
    v = tf.Variable(1.0)
    with pytest.raises(TypeError, match="unhashable"):
        hash(v)
    assert {v.ref(): 1}[v.ref()] == 1
    assert v.ref().deref() is v


def test_a_variable_made_in_a_scope_lies_on_all_its_devices():
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:3"])
    with strategy.scope():
        v = tf.Variable([1.0])
    v.assign([2.0])
    assert v.value().sharding.device_set == {jax.devices()[0], jax.devices()[3]}
    assert v.value().sharding.is_fully_replicated


def test_names_end_as_tensorflows_do():
    assert tf.Variable(1.0, name="weight").name == "weight:0"


def test_slices_of_a_variable_can_be_assigned_and_do_not_keep_it_from_being_freed():
    v = tf.Variable([1.0, 2.0, 3.0])
    whole = v[:]
    whole.assign([4.0, 5.0, 6.0])
    v[1].assign_add(1.0)
    assert v.numpy().tolist() == [4.0, 6.0, 6.0]
    assert not hasattr(v.value(), "assign")


def test_function_that_changes_a_variables_shape_runs_as_python():
    v = tf.Variable([1.0], shape=tf.TensorShape(None))
    assert tf.function(lambda: v.assign([1.0, 2.0]))().tolist() == [1.0, 2.0]
    assert tf.function(lambda: v + 1.0)().tolist() == [2.0, 3.0]


def test_pickle_and_deepcopy_keep_value_and_name():
    v = tf.Variable([1.0], name="w", trainable=False)
    for twin in (pickle.loads(pickle.dumps(v)), copy.deepcopy(v)):
        twin.assign([5.0])
        assert (v.numpy().tolist(), twin.name, twin.trainable) == ([1.0], "w:0", False)


@pytest.mark.parametrize(("how", "wanted"), [("SUM", 23.0), ("MEAN", 21.5), ("ONLY_FIRST_REPLICA", 21.0)])
def test_replicas_scatter_what_the_aggregation_says(how, wanted):
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    with strategy.scope():
        v = tf.Variable([10.0, 20.0], aggregation=getattr(tf.VariableAggregation, how))

    @tf.function
    def run():
        def step():
            number = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32) + 1.0
            v.scatter_add(tf.IndexedSlices(tf.reshape(number, [1]), tf.constant([1])))

        strategy.run(step)

    run()
    assert v.numpy().tolist() == [10.0, wanted]


def test_what_a_variable_does_not_have_is_explained():
    with pytest.raises(AttributeError, match="no operation in a graph"):
        _ = tf.Variable(1.0).handle


def test_no_aggregation_and_no_synchronization_are_the_defaults():
    v = tf.Variable(1.0, aggregation=None, synchronization=None)
    assert v.aggregation is tf.VariableAggregation.NONE and v.synchronization is tf.VariableSynchronization.AUTO
