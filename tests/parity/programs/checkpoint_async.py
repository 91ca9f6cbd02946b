"""Checkpoints that are written in the background: values as they were, callbacks, and waiting for the end."""

import os
import tempfile

import tensorflow as tf
from _facts import error, show

folder = tempfile.mkdtemp()
base = os.path.basename
weight = tf.Variable([1.0, 2.0])
step = tf.Variable(0, dtype=tf.int64)
checkpoint = tf.train.Checkpoint(weight=weight, step=step)

told = []
options = tf.train.CheckpointOptions(
    experimental_enable_async_checkpoint=True,
    experimental_write_callbacks=[lambda: told.append("done"), lambda path: told.append(base(path))],
)
show("options", [options.enable_async, options.experimental_enable_async_checkpoint])
show("callbacks", len(options.experimental_write_callbacks))
path = checkpoint.write(os.path.join(folder, "written"), options)
weight.assign([8.0, 9.0])
checkpoint.sync()
show("written", base(path))
show("told", told)
show("as it was", tf.train.load_variable(path, "weight/.ATTRIBUTES/VARIABLE_VALUE"))

checkpoint = tf.train.Checkpoint(weight=weight, step=step)
manager = tf.train.CheckpointManager(checkpoint, os.path.join(folder, "kept"), max_to_keep=2)
plain = tf.train.CheckpointOptions(enable_async=True)
for value in range(4):
    step.assign(value)
    saved = manager.save(options=plain)
    weight.assign_add([1.0, 1.0])
    show("saved", base(saved))
manager.sync()
show("kept", [base(kept) for kept in manager.checkpoints])
show("latest", [base(manager.latest_checkpoint), base(tf.train.latest_checkpoint(os.path.join(folder, "kept")))])
checkpoint.restore(manager.latest_checkpoint)
show("restored", [weight, step, checkpoint.save_counter])
show("plain callbacks", plain.experimental_write_callbacks)
error("a callback of two", lambda: tf.train.CheckpointOptions(experimental_write_callbacks=[lambda a, b: None]))
