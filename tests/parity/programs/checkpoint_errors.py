"""What goes wrong with checkpoints, and what their statuses say."""

import os
import tempfile

import tensorflow as tf
from _facts import error, show

os.chdir(tempfile.mkdtemp())
V = tf.Variable
path = tf.train.Checkpoint(a=V(1.0), b=[V(2), V([3.0, 4.0])]).save("dir/ckpt")
show("path", path)
show("files of the folder", sorted(name for name in os.listdir("dir") if "." not in name and "-" not in name))

nothing = tf.train.Checkpoint(a=V(5.0)).restore(None)
for name in ("assert_consumed", "assert_existing_objects_matched", "assert_nontrivial_match", "run_restore_ops"):
    error(f"nothing restored, {name}", getattr(nothing, name))
show("initialize_or_restore", nothing.initialize_or_restore())
show("expect_partial", nothing.expect_partial() is nothing)

error("other dtype", lambda: tf.train.Checkpoint(a=V(1)).read(path).expect_partial())
error("other rank", lambda: tf.train.Checkpoint(a=V([1.0])).read(path).expect_partial())
late = tf.train.Checkpoint()
late.restore(path).expect_partial()


def assign_late():
    late.a = V([1.0, 2.0])


error("other shape, later", assign_late)
error("trivial", lambda: tf.train.Checkpoint(z=V(1)).read(path).expect_partial().assert_nontrivial_match())
error("not there", lambda: tf.train.Checkpoint(a=V(1.0)).read("dir/ckpt-2"))
error("empty folder", lambda: tf.train.load_checkpoint("."))
error("no such key", lambda: tf.train.load_variable(path, "nothing"))
error("no such tensor", lambda: tf.train.load_checkpoint(path).get_tensor("nothing"))
for bad in (3, "text", None, 1.5, print):
    error(f"not trackable: {type(bad).__name__}", lambda: tf.train.Checkpoint(bad=bad))

kept = V(7.0)
full = tf.train.Checkpoint(a=kept, b=[V(0), V([0.0, 0.0])])
show("consumed", full.restore(path).assert_consumed() is not None)
show("values", [full.a, *full.b])
fewer = tf.train.Checkpoint(a=V(0.0), b=[V(0)])
status = fewer.restore(path)
error("one too few", status.assert_consumed)
show("matched", status.assert_existing_objects_matched() is status)
show("not trivial", status.assert_nontrivial_match() is status)
fewer.b.append(V([0.0, 0.0]))
show("appended", fewer.b[1])
show("now all", status.assert_consumed() is status)

fewer.a = V(100.0)
show("what was consumed is not given twice", fewer.a)
first = tf.train.Checkpoint(x=V(1.0)).write("w1")
second = tf.train.Checkpoint(x=V(2.0)).write("w2")
waiting = tf.train.Checkpoint()
waiting.read(first)
waiting.read(second)
waiting.x = V(0.0)
show("the later one counts", waiting.x)
show("written without counter", [key for key, _ in tf.train.list_variables(first) if "GRAPH" not in key])
show("relative", [tf.train.latest_checkpoint("dir"), tf.train.latest_checkpoint("dir/")])
show("URL", tf.train.latest_checkpoint(f"file://{os.getcwd()}/dir") == f"file://{os.getcwd()}/dir/ckpt-1")
show("state", list(tf.train.get_checkpoint_state("dir").all_model_checkpoint_paths))
