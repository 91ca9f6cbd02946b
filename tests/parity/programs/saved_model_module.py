"""Saving a module with variables and functions as a SavedModel, and what loading it gives."""

import os
import tempfile

import tensorflow as tf
from _facts import error, show

folder = os.path.join(tempfile.mkdtemp(), "model")


class Net(tf.Module):
    def __init__(self):
        super().__init__(name="net")
        self.w = tf.Variable([[1.0, 2.0], [3.0, 4.0]], name="w")
        self.calls = tf.Variable(0, trainable=False, name="calls", dtype=tf.int64)
        self.parts = [tf.Variable(1.5), {"a": tf.Variable(2.5)}]
        self.pair = (tf.Variable(7.0), 3)
        self.inner = tf.Module(name="inner")
        self.inner.half = tf.Variable(0.5, dtype=tf.bfloat16)
        self.number = 5
        self.constant = tf.constant([1.0, 2.0])

    @tf.function
    def apply(self, x, scale=1.0, training=False):
        return {"y": tf.matmul(x, self.w) * scale + self.constant, "rest": (x, [x + 1.0])}

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="inp")])
    def counted(self, x):
        self.calls.assign_add(tf.cast(tf.shape(x)[0], tf.int64))
        return tf.reduce_sum(tf.matmul(x, self.w) * self.parts[0], axis=1)

    @tf.function
    def nested(self, d, *, k, flag):
        return d["a"] + d["b"][0], k, tf.logical_not(flag)

    @tf.function
    def never_called(self, x):
        return x


net = Net()
net.apply(tf.ones([1, 2]))
net.apply(tf.ones([3, 2]), training=True)
net.apply(tf.ones([1, 2]), 2.0)
net.nested({"a": tf.ones([2]), "b": [tf.ones([2])]}, k=tf.constant(1), flag=tf.constant(True))
show("before", tf.saved_model.contains_saved_model(folder))
show("returned", tf.saved_model.save(net, folder))
show("contains", tf.saved_model.contains_saved_model(folder))

loaded = tf.saved_model.load(folder)
show(
    "attributes",
    [
        name
        for name in (*sorted(vars(net)), "apply", "counted", "nested", "never_called")
        if hasattr(loaded, name) and name[0] != "_"
    ],
)
show("w", loaded.w)
show("names", [loaded.w.name, loaded.calls.name, loaded.calls.trainable, loaded.w.trainable, loaded.calls.dtype.name])
show("parts", [loaded.parts[0], loaded.parts[1]["a"], len(loaded.pair)])
show("inner", [loaded.inner.half, loaded.inner.half.dtype.name])
for name in ("number", "constant", "variables", "name"):
    show(name, hasattr(loaded, name))
show("signatures", list(loaded.signatures))

result = loaded.apply(tf.ones([1, 2]))
show("apply", [result["y"], result["rest"][0], result["rest"][1][0], type(result["rest"]).__name__])
show("training", loaded.apply(tf.ones([3, 2]), training=True)["y"])
show("scaled", loaded.apply(tf.ones([1, 2]), scale=2.0)["y"])
show("list", loaded.apply([[1.0, 2.0]])["y"])
for rows in (1, 2, 5):
    show("counted", loaded.counted(tf.ones([rows, 2])))
show("calls", [loaded.calls, net.calls])
show("nested", loaded.nested({"a": tf.ones([2]), "b": [tf.ones([2])]}, k=tf.constant(1), flag=tf.constant(True)))
loaded.w.assign(tf.zeros([2, 2]))
show("present values", loaded.apply(tf.ones([1, 2]))["y"])
loaded.parts[0].assign(3.0)
loaded.w.assign(tf.ones([2, 2]))
show("present values", loaded.counted(tf.ones([2, 2])))

error("other shape", lambda: loaded.apply(tf.ones([2, 2])))
error("other constant", lambda: loaded.apply(tf.ones([1, 2]), 3.0))
error("other sizes", lambda: loaded.counted(tf.ones([5, 3])))
error("other type", lambda: loaded.counted(tf.ones([5, 2], tf.float64)))
error("never called", lambda: loaded.never_called(tf.ones([2])))
error("no module", lambda: tf.saved_model.save(lambda x: x, folder))
error("tags", lambda: tf.saved_model.load(folder, tags="train"))
show("tags", list(tf.saved_model.load(folder, tags=["serve"]).signatures))


class Untracked(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def f(self, x):
        return x + hidden[0]


hidden = [tf.Variable(1.0)]
error("untracked", lambda: tf.saved_model.save(Untracked(), folder + "2"))

net.w.assign(tf.fill([2, 2], 9.0))
tf.saved_model.save(net, folder)
show("saved again", tf.saved_model.load(folder).w)

tf.saved_model.save(loaded, folder + "3")
again = tf.saved_model.load(folder + "3")
show("of loaded", [again.counted(tf.ones([3, 2])), again.w, again.apply(tf.ones([1, 2]))["y"]])

v = tf.Variable(3.0)
checkpoint = tf.train.Checkpoint(v=v, f=tf.function(lambda x: x * v, input_signature=[tf.TensorSpec([], tf.float32)]))
tf.saved_model.save(checkpoint, folder)
loaded = tf.saved_model.load(folder)
show("checkpoint", [loaded.f(tf.constant(2.0)), loaded.v])
