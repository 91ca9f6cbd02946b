"""How many all-reduces a step has: `bytes_per_pack`, and ways to reduce of the user's own."""

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

ARRAYS, SIZE = 8, 512  # 2 KiB each


@pytest.mark.parametrize(("bytes_per_pack", "reductions"), [(0, 1), (4096, 4), (1, 8), (1 << 20, 1)])
def test_bytes_per_pack_decides_how_many_all_reduces_there_are(bytes_per_pack, reductions):
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=bytes_per_pack)

    def step(x):
        parts = [x * float(i) for i in range(ARRAYS)]
        return tf.distribute.get_replica_context().all_reduce("SUM", parts, options)

    run = tf.function(lambda x: strategy.run(step, args=(x,)))
    x = tf.ones([SIZE])
    assert run.lower(x).as_text().count("stablehlo.all_reduce") == reductions
    np.testing.assert_allclose(run(x)[3].values[1], np.full(SIZE, 6.0))


def test_zero_and_less_are_no_time_out_as_in_tensorflow():
    options = tf.distribute.experimental.CommunicationOptions
    assert options(timeout_seconds=2).limit_s == 2.0
    assert {options(timeout_seconds=none).limit_s for none in (None, 0, -1.5, float("nan"))} == {float("inf")}
    assert options(timeout_seconds=3).merge(options(timeout_seconds=0)).limit_s == float("inf")
    with pytest.raises(TypeError, match="`timeout_seconds` must be a number of seconds, or None, got '3'"):
        options(timeout_seconds="3")


class Largest(tf.distribute.CrossDeviceOps):
    """Takes the largest of the replicas' values for their sum."""

    def __init__(self):
        self.asked = 0

    def reduce_implementation(self, reduce_op, per_replica_value, destinations, options):
        self.asked += 1
        return tf.reduce_max(tf.stack(per_replica_value.values), 0)


def replica_number():
    return tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)


def test_own_way_to_reduce_is_asked_by_replicas_and_in_batches():
    ops = Largest()
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"], cross_device_ops=ops)
    total = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", replica_number()))
    assert [float(v) for v in total.values] == [1, 1] and ops.asked == 1
    values = strategy.run(lambda: replica_number() + 5.0)
    assert [float(v) for v in strategy.extended.batch_reduce_to("SUM", [(values, values)])] == [6] and ops.asked == 2
    assert float(strategy.reduce("SUM", values, axis=None)) == 11 and ops.asked == 2


def test_accumulation_function_is_called():
    tenfold = tf.distribute.ReductionToOneDevice(accumulation_fn=lambda values: tf.add_n(values) * 10.0)
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"], cross_device_ops=tenfold)
    for op, result in (("SUM", 20), ("MEAN", 10)):
        total = strategy.run(lambda op=op: tf.distribute.get_replica_context().all_reduce(op, tf.constant(1.0)))
        assert [float(v) for v in total.values] == [result] * 2


def test_extended_reduces_in_a_replica():
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1", "/cpu:2"])

    def step():
        number = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
        return tf.distribute.get_strategy().extended._replica_ctx_all_reduce("SUM", [number, tf.ones([2])], None)

    total, ones = strategy.experimental_local_results(tf.function(lambda: strategy.run(step))())[0]
    assert float(total) == 0 + 1 + 2 and ones.numpy().tolist() == [3, 3]
    with pytest.raises(RuntimeError, match="replica context"):
        strategy.extended._replica_ctx_all_reduce("SUM", tf.ones([2]))


@pytest.mark.parametrize("wrong", ["int4", ["int8"], 8])
def test_forms_of_compression_that_do_not_exist_are_refused(wrong):
    with pytest.raises(ValueError, match=r"`compression` must be one of \['bf16', 'int8', 'powersgd', 'topk'\]"):
        tf.distribute.experimental.CommunicationOptions(compression=wrong)
