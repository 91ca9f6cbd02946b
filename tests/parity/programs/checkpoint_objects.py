"""Saving and restoring objects: nesting, lists, dicts, counters, deferred restoration."""

import os
import tempfile

import tensorflow as tf
from _facts import error, show

folder = tempfile.mkdtemp()
prefix = os.path.join(folder, "ckpt")


class Net(tf.Module):
    def __init__(self, value=0.0):
        super().__init__()
        self.w = tf.Variable(tf.fill([2], value))
        self.inner = {"list": [tf.Variable(value + 1), tf.Variable(value + 2)]}


step = tf.Variable(7)
net = Net(10.0)
checkpoint = tf.train.Checkpoint(step=step, net=net, extra=[tf.Variable(1.5)])
path = checkpoint.save(prefix)
show("path", os.path.basename(path))
show("counter", checkpoint.save_counter)
step.assign(8)
net.w.assign([0.0, 0.0])
show("second", os.path.basename(checkpoint.save(prefix)))
show("latest", os.path.basename(tf.train.latest_checkpoint(folder)))
keys = [key for key, _ in tf.train.list_variables(path) if key != "_CHECKPOINTABLE_OBJECT_GRAPH"]
show("keys", keys)
show("shapes", [shape for key, shape in tf.train.list_variables(path) if key in keys])
show("one value", tf.train.load_variable(path, "net/w/.ATTRIBUTES/VARIABLE_VALUE"))
reader = tf.train.load_checkpoint(path)
show(
    "reader",
    [reader.has_tensor(keys[0]), reader.has_tensor("nothing"), reader.get_tensor("step/.ATTRIBUTES/VARIABLE_VALUE")],
)

status = checkpoint.restore(path)
status.assert_consumed()
show("restored", [step, net.w, checkpoint.save_counter])

other = tf.train.Checkpoint(step=tf.Variable(0), net=Net())
status = other.restore(path)
show("in other objects", [other.step, other.net.w, other.net.inner["list"][1]])
status.assert_existing_objects_matched()
error("something is left", lambda: status.assert_consumed())
status.expect_partial()

more = tf.train.Checkpoint(step=tf.Variable(0), unknown=tf.Variable(3.0))
status = more.restore(path)
error("no value for it", lambda: status.assert_existing_objects_matched())
status.expect_partial()

late = tf.train.Checkpoint()
status = late.restore(path)
late.step = tf.Variable(0)
show("deferred", late.step)
late.net = Net()
show("deferred nested", [late.net.w, late.net.inner["list"][0]])
status.expect_partial()

error("no such checkpoint", lambda: checkpoint.restore(os.path.join(folder, "nothing")))
error("other shape", lambda: tf.train.Checkpoint(step=tf.Variable([1, 2])).restore(path).expect_partial())
error("not trackable", lambda: tf.train.Checkpoint(x=3))
show("restore of None", checkpoint.restore(None) is not None)
show("latest of nothing", tf.train.latest_checkpoint(os.path.join(folder, "nothing")))

written = checkpoint.write(os.path.join(folder, "plain"))
show("write", [os.path.basename(written), checkpoint.save_counter])
step.assign(99)
checkpoint.read(written).assert_consumed()
show("read", step)

root = tf.train.Checkpoint(net)
saved = root.save(os.path.join(folder, "root"))
net.w.assign([5.0, 5.0])
root.restore(saved)
show("root object", net.w)
show("root keys", [k for k, _ in tf.train.list_variables(saved) if k != "_CHECKPOINTABLE_OBJECT_GRAPH"])


class Text(tf.train.experimental.PythonState):
    def __init__(self, text):
        self.text = text

    def serialize(self):
        return self.text

    def deserialize(self, string_value):
        self.text = string_value


text = Text("before")
python = tf.train.Checkpoint(text=text)
saved = python.save(os.path.join(folder, "python"))
text.text = "after"
python.restore(saved)
show("Python state", str(text.text if isinstance(text.text, str) else text.text.decode()))
