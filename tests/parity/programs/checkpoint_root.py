"""`Checkpoint(root)`: the root's own attributes, also those that it gets later, references to it, and weak ones."""

import copy
import os
import tempfile
import weakref

import tensorflow as tf
from _facts import error, show

folder = tempfile.mkdtemp()
keys = lambda path: [key for key, _ in tf.train.list_variables(path) if key != "_CHECKPOINTABLE_OBJECT_GRAPH"]


def module(**attributes):
    made = tf.Module()
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


saved = tf.train.Checkpoint(module(v=tf.Variable(5.0), part=module(w=tf.Variable(6.0)))).write(f"{folder}/root")
later = tf.Module()
checkpoint = tf.train.Checkpoint(later)
status = checkpoint.read(saved)
later.v = tf.Variable(1.0)
show("made after reading", later.v)
later.part = tf.Module()
later.part.w = tf.Variable(1.0)
show("in a part", later.part.w)
status.assert_consumed()
later.other = tf.Variable(7.0)
error("not in the checkpoint", status.assert_existing_objects_matched)
show("root", [checkpoint.root is later, tf.train.Checkpoint(v=later.v).__dict__.get("root")])

counted = tf.train.Checkpoint(later)
with_counter = counted.save(f"{folder}/counted")
fresh = tf.Module()
again = tf.train.Checkpoint(fresh, extra=tf.Variable(3.0))
again.restore(with_counter)
fresh.other = tf.Variable(0.0)
show("save counter", [again.save_counter, fresh.other, again.extra])
show("keys with keyword arguments", keys(again.write(f"{folder}/extra")))

loop = module(v=tf.Variable(1.0))
loop.part = module(above=loop, w=tf.Variable(2.0))
looped = tf.train.Checkpoint(loop).write(f"{folder}/loop")
show("a part that refers to the root", keys(looped))
loop.v.assign(10.0)
loop.part.w.assign(20.0)
tf.train.Checkpoint(loop).read(looped).assert_consumed()
show("restored", [loop.v, loop.part.w])

single = tf.Variable(4.0)
alone = tf.train.Checkpoint(single).write(f"{folder}/variable")
show("a variable as root", keys(alone))

held = module(v=tf.Variable(1))
weak = tf.train.Checkpoint(root=weakref.ref(held), extra=tf.Variable(2))
path = weak.write(f"{folder}/weak")
show("weak reference", keys(path))
held.v.assign(2)
weak.read(path).assert_consumed()
show("restored", held.v)

inner = tf.train.Checkpoint(a=tf.Variable(1.0))
show("a checkpoint as root", keys(tf.train.Checkpoint(inner).save(f"{folder}/inner")))
error("a number as root", lambda: tf.train.Checkpoint(3))
error("a list as root", lambda: tf.train.Checkpoint([single]))
unrelated = tf.train.Checkpoint(held)
unrelated.later = tf.Variable(1.0)
show("later attributes of the checkpoint", keys(unrelated.write(f"{folder}/unrelated")))
error("a name that root has", lambda: tf.train.Checkpoint(held, v=tf.Variable(8)))

original = tf.train.Checkpoint(v=tf.Variable(1.0), part=module(w=tf.Variable(2.0)))
original.save(f"{folder}/original")
twin = copy.deepcopy(original)
twin.v.assign(5.0)
twin.part.w.assign(6.0)
show("a deep copy is apart", [original.v, twin.v, original.part.w, twin.part.w])
show("and saves", [os.path.basename(twin.save(f"{folder}/twin")), original.save_counter, twin.save_counter])

callbacks = [lambda: None]
options = tf.train.CheckpointOptions(experimental_write_callbacks=callbacks)
copied = copy.copy(options)
copied.experimental_write_callbacks.append(lambda: None)
show("copied options", [len(options.experimental_write_callbacks), len(copied.experimental_write_callbacks)])
show("of none", copy.copy(tf.train.CheckpointOptions()).experimental_write_callbacks)
