"""Checkpoints saved under one strategy and restored under another."""

import os
import tempfile

import tensorflow as tf
from _facts import show

folder = tempfile.mkdtemp()
four = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(4)])
two = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
one = tf.distribute.OneDeviceStrategy("/cpu:2")


def make(strategy):
    with strategy.scope():
        weight = tf.Variable([1.0, 2.0], aggregation=tf.VariableAggregation.MEAN)
        total = tf.Variable(
            0.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM
        )
        mean = tf.Variable(
            0.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.MEAN
        )
        return tf.train.Checkpoint(weight=weight, total=total, mean=mean)


def train(strategy, state):
    def step():
        replica = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
        state.weight.assign_add([replica, 1.0])
        state.total.assign_add(replica + 1.0)
        state.mean.assign_add(replica)

    strategy.run(step)


state = make(four)
train(four, state)
show("saved", [state.weight, state.total.read_value(), state.mean.read_value()])
path = state.save(os.path.join(folder, "ckpt"))
for name, strategy in (("two", two), ("one", one), ("four", four)):
    other = make(strategy)
    other.restore(path).assert_consumed()
    show(f"under {name}", [other.weight, other.total.read_value(), other.mean.read_value()])
    train(strategy, other)
    show(f"trained under {name}", [other.weight, other.total.read_value(), other.mean.read_value()])
plain = tf.train.Checkpoint(weight=tf.Variable([0.0, 0.0]), total=tf.Variable(0.0), mean=tf.Variable(0.0))
plain.restore(path).assert_consumed()
show("without strategy", [plain.weight, plain.total, plain.mean])
plain.total.assign(100.0)
back = plain.save(os.path.join(folder, "plain"))
state.restore(back).assert_consumed()
show("and back", [state.weight, state.total.read_value(), [v for v in four.experimental_local_results(state.total)]])
