"""`CheckpointManager`: numbering, keeping, intervals, and going on after a restart."""

import os
import tempfile

import tensorflow as tf
from _facts import error, show

folder = tempfile.mkdtemp()
step = tf.Variable(0, dtype=tf.int64)
weight = tf.Variable(1.0)
checkpoint = tf.train.Checkpoint(step=step, weight=weight)
manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=2)
base = lambda path: None if path is None else os.path.basename(path)
show("nothing yet", [manager.latest_checkpoint, manager.checkpoints])
show("initialize", manager.restore_or_initialize())
for value in range(4):
    step.assign(value)
    weight.assign_add(1.0)
    show("saved", base(manager.save()))
show("kept", [base(path) for path in manager.checkpoints])
show("latest", [base(manager.latest_checkpoint), base(tf.train.latest_checkpoint(folder))])
show("gone", [tf.train.latest_checkpoint(folder) is not None, len(tf.io.gfile.glob(os.path.join(folder, "ckpt-1*")))])
state = tf.train.get_checkpoint_state(folder)
show("state", [base(state.model_checkpoint_path), [base(p) for p in state.all_model_checkpoint_paths]])

again = tf.train.Checkpoint(step=tf.Variable(0, dtype=tf.int64), weight=tf.Variable(0.0))
second = tf.train.CheckpointManager(again, folder, max_to_keep=3, checkpoint_name="ckpt")
show("second process", base(second.restore_or_initialize()))
show("restored", [again.step, again.weight, again.save_counter])
show("goes on", base(second.save()))
show("three kept", [base(path) for path in second.checkpoints])
show("with a number", base(second.save(checkpoint_number=42)))

intervals = tf.train.CheckpointManager(
    again,
    os.path.join(folder, "sub"),
    max_to_keep=None,
    step_counter=again.step,
    checkpoint_interval=2,
    init_fn=lambda: again.weight.assign(100.0),
    checkpoint_name="model",
)
intervals.restore_or_initialize()
show("init_fn", again.weight)
saved = []
for _ in range(5):
    again.step.assign_add(1)
    saved.append(base(intervals.save()))
show("every second step", [name is not None for name in saved])
show("interval", intervals.checkpoint_interval)
show("directory", base(intervals.directory))
error("max_to_keep", lambda: tf.train.CheckpointManager(again, folder, max_to_keep=0))
error("interval without counter", lambda: tf.train.CheckpointManager(again, folder, None, checkpoint_interval=1))
average = tf.train.ExponentialMovingAverage(0.9)
x = tf.Variable(1.0)
average.apply([x])
x.assign(2.0)
average.apply([x])
show("moving average", average.average(x))
