"""Checkpoints in TensorFlow's files: which there are, what is in them, and that they are restored and replaced."""

import os
import tempfile

import numpy as np
import tensorflow as tf
from _facts import error, show

os.environ["TFDIST_CHECKPOINT_FORMAT"] = "tensorflow"  # Means nothing to TensorFlow.
folder = tempfile.mkdtemp()
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


def files(path=folder):
    return sorted(name for name in os.listdir(path) if os.path.isfile(os.path.join(path, name)))


def show_all(label, path):
    reader = tf.train.load_checkpoint(path)
    names = [name for name, _ in tf.train.list_variables(path)]
    show(f"{label}: variables", names)
    show(f"{label}: shapes", reader.get_variable_to_shape_map())
    show(f"{label}: types", {name: dtype.name for name, dtype in reader.get_variable_to_dtype_map().items()})
    for name in names:
        if name.endswith(VALUE):
            show(f"{label}: {name}", reader.get_tensor(name))


types = "bool complex64 complex128 float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
numbers = np.array([[0, 1], [2, 3]])
checkpoint = tf.train.Checkpoint(
    types={name: tf.Variable(numbers.astype(name)) for name in types},
    scalar=tf.Variable(1.5),
    empty=tf.Variable(tf.zeros([0, 3])),
    half=tf.Variable(tf.constant([1.5, 2.5], tf.bfloat16)),
)
path = checkpoint.write(f"{folder}/types")
show("files", files())
reader = tf.train.load_checkpoint(path)
for name in [*(f"types/{name}" for name in types), "scalar", "empty"]:
    show(name, reader.get_tensor(name + VALUE))
show("bfloat16", reader.get_tensor("half" + VALUE).astype("f4"))
show("has", [reader.has_tensor("scalar" + VALUE), reader.has_tensor("scalar")])
show("no NumPy strings", isinstance(reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"), bytes))
error("not there", lambda: reader.get_tensor("scalar"))
error("no checkpoint", lambda: tf.train.load_checkpoint(f"{folder}/nothing"))
error("no checkpoint in the folder", lambda: tf.train.load_checkpoint(folder))

module = tf.Module()
module.rows = [tf.Variable([1.0, 2.0]), {"a/b.c": tf.Variable(3.0), "pair": (tf.Variable(4.0), tf.Variable(5.0))}]
module.inner = tf.Module()
module.inner.again = module.rows[0]
saved = tf.train.Checkpoint(module=module, generator=tf.random.Generator.from_seed(5))
manager = tf.train.CheckpointManager(saved, f"{folder}/managed", max_to_keep=2)
for _ in range(3):
    module.rows[0].assign_add([1.0, 1.0])
    newest = manager.save()
show("managed", files(f"{folder}/managed"))
show("latest", os.path.basename(tf.train.latest_checkpoint(f"{folder}/managed")))
show_all("module", newest)
show("loaded", tf.train.load_variable(f"{folder}/managed", f"module/rows/0{VALUE}"))

other = tf.Module()
other.rows = [tf.Variable([0.0, 0.0]), {"a/b.c": tf.Variable(0.0)}]
restored = tf.train.Checkpoint(module=other)
status = restored.restore(newest)
show("restored", [other.rows[0], other.rows[1]["a/b.c"], restored.save_counter])
error("not all", status.assert_consumed)
show("all that are there", status.assert_existing_objects_matched() is not None)
status.expect_partial()
show("older", tf.train.Checkpoint(module=other).restore(f"{folder}/managed/ckpt-2").expect_partial() is not None)
show("its value", other.rows[0])

variable = tf.Variable([1, 2])
same = tf.train.Checkpoint(v=variable)
for number in range(3):
    variable.assign([number, number])
    same.write(f"{folder}/same")
    show("written again", tf.train.load_variable(f"{folder}/same", "v" + VALUE))
error("another shape", lambda: tf.train.Checkpoint(v=tf.Variable([1, 2, 3])).read(f"{folder}/same"))
error("another type", lambda: tf.train.Checkpoint(v=tf.Variable([1.0, 2.0])).read(f"{folder}/same"))
error("nothing there", lambda: tf.train.Checkpoint(v=variable).read(f"{folder}/none"))
