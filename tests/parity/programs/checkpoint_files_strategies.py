"""Checkpoints in TensorFlow's files under strategies, in the background, and of objects that are made later."""

import os
import tempfile

import tensorflow as tf
from _facts import error, show

os.environ["TFDIST_CHECKPOINT_FORMAT"] = "tensorflow"  # Means nothing to TensorFlow.
folder = tempfile.mkdtemp()
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])


def make():
    with strategy.scope():
        return tf.train.Checkpoint(
            mirrored=tf.Variable([1.0, 2.0]),
            total=tf.Variable(
                0.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM
            ),
        )


saved = make()


@tf.function
def step():
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    saved.total.assign_add(tf.cast(replica, tf.float32) + 1.0)


strategy.run(step)
path = saved.save(f"{folder}/mirrored")
show("variables", tf.train.list_variables(path))
show("total", tf.train.load_variable(path, f"total{VALUE}"))
again = make()
again.restore(path).assert_consumed()
show("restored", [again.mirrored.numpy(), strategy.reduce("SUM", again.total, axis=None)])
plain = tf.train.Checkpoint(mirrored=tf.Variable([0.0, 0.0]), total=tf.Variable(0.0))
plain.restore(path).assert_consumed()
show("without a strategy", [plain.mirrored, plain.total])

counter = tf.Variable(0)
background = tf.train.Checkpoint(counter=counter)
options = tf.train.CheckpointOptions(enable_async=True)
for number in range(3):
    counter.assign(number)
    newest = background.save(f"{folder}/background/ckpt", options)
    counter.assign(-1)
background.sync()
show("in the background", tf.train.load_variable(f"{folder}/background/ckpt-3", f"counter{VALUE}"))


class Text(tf.train.experimental.PythonState):
    def __init__(self, text):
        self.text = text

    def serialize(self):
        return self.text

    def deserialize(self, string_value):
        self.text = string_value if isinstance(string_value, str) else string_value.decode()


written = tf.train.Checkpoint(text=Text("words"), list=[tf.Variable(1.0), tf.Variable(2.0)]).write(f"{folder}/text")
show("names", [name for name, _ in tf.train.list_variables(written)])
later = tf.train.Checkpoint(text=Text(""), list=[])
status = later.read(written)
error("not yet", status.assert_consumed)
later.list.append(tf.Variable(0.0))
later.list.append(tf.Variable(0.0))
status.assert_consumed()
show("later", [later.text.text, *later.list])

view = tf.train.CheckpointView(written)
show("view", [sorted(view.children(0)), len(view.descendants())])

checkpoint = tf.train.Checkpoint(v=tf.Variable([1.0]))
for number in range(4):
    checkpoint.save(f"{folder}/folder/ckpt")
show("files", sorted(os.listdir(f"{folder}/folder")))
state = tf.train.get_checkpoint_state(f"{folder}/folder")
show("state", [os.path.basename(state.model_checkpoint_path), len(state.all_model_checkpoint_paths)])
manager = tf.train.CheckpointManager(checkpoint, f"{folder}/folder", max_to_keep=1, checkpoint_name="ckpt")
show("restored", os.path.basename(manager.restore_or_initialize()))
manager.save()
show("kept", [os.path.basename(each) for each in manager.checkpoints])
show("the others stay", sorted(os.listdir(f"{folder}/folder")))
