"""Folders of checkpoints: ones that no manager has saved, new ones as they come; writing in functions; trivial matches."""

import os
import tempfile

import tensorflow as tf
from _facts import error, show

folder = tempfile.mkdtemp()
base = lambda path: None if path is None else os.path.basename(path)
bases = lambda paths: [base(path) for path in paths]

checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0))
first = tf.train.CheckpointManager(checkpoint, f"{folder}/mixed", max_to_keep=2)
first.save()
checkpoint.save(f"{folder}/mixed/other")
second = tf.train.CheckpointManager(checkpoint, f"{folder}/mixed", max_to_keep=1)
show("managed", [bases(first.checkpoints), bases(second.checkpoints)])
show("latest", [base(first.latest_checkpoint), base(second.latest_checkpoint)])
show("restored", base(second.restore_or_initialize()))
show("saved", [base(second.save()), bases(second.checkpoints), base(second.latest_checkpoint)])
show("the other is left", "other-2" in {name.partition(".")[0] for name in os.listdir(f"{folder}/mixed")})
third = tf.train.CheckpointManager(checkpoint, f"{folder}/mixed", max_to_keep=1)
show("third", [bases(third.checkpoints), base(third.latest_checkpoint)])
state = tf.train.get_checkpoint_state(f"{folder}/mixed")
show("times", [len(state.all_model_checkpoint_timestamps), state.last_preserved_timestamp > 0])
checkpoint.save(f"{folder}/alone/ckpt")
state = tf.train.get_checkpoint_state(f"{folder}/alone")
show("times without a manager", [len(state.all_model_checkpoint_timestamps), state.last_preserved_timestamp])

new = tf.train.CheckpointManager(checkpoint, f"{folder}/new", max_to_keep=2)
seen, asked = [], []


def is_over():
    asked.append(len(seen))
    if not seen:
        new.save(checkpoint_number=10)
    return len(seen) == 3


for path in tf.train.checkpoints_iterator(f"{folder}/new", timeout=1, timeout_fn=is_over):
    seen.append(base(path))
    new.save(checkpoint_number=10 + len(seen))
show("new ones", [seen, asked])
show("until it takes too long", bases(tf.train.checkpoints_iterator(f"{folder}/new", timeout=0)))
show("none", list(tf.train.checkpoints_iterator(f"{folder}/nothing", timeout=0)))

v = tf.Variable(1.0)
inner = tf.train.Checkpoint(v=v)


@tf.function
def step():
    v.assign_add(1.0)
    path = inner.write(f"{folder}/inside")
    v.assign_add(1.0)
    return path


for _ in range(2):
    path = step()
    show("written in a function", [path.dtype.name, base(path.numpy().decode()), v])
    show("value", tf.train.load_variable(f"{folder}/inside", "v/.ATTRIBUTES/VARIABLE_VALUE").item())
error("save in a function", tf.function(lambda: inner.save(f"{folder}/saved")))

written = tf.train.Checkpoint(a=[], m=tf.Module()).write(f"{folder}/empty")
for label, holder in {"list": tf.train.Checkpoint(a=[]), "module": tf.train.Checkpoint(m=tf.Module())}.items():
    show(f"only a {label}", holder.read(written).assert_nontrivial_match() is not None)
error("nothing that is there", lambda: tf.train.Checkpoint(b=[]).read(written).assert_nontrivial_match())
error("nothing at all", lambda: tf.train.Checkpoint().read(written).assert_nontrivial_match())
saved = tf.train.Checkpoint(x=tf.Variable(1.0)).save(f"{folder}/counted")
show("the counter", tf.train.Checkpoint().restore(saved).assert_nontrivial_match() is not None)

average = tf.train.ExponentialMovingAverage(0.9)
averaged, other = tf.Variable(1.0, name="averaged"), tf.Variable(2.0, name="other")
average.apply([averaged])
show("to restore", average.variables_to_restore())
show("to restore of some", average.variables_to_restore([averaged, other]))
