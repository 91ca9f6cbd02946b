"""`tf.train.CheckpointView`: what a checkpoint holds, compared with the objects of a program."""

import tempfile

import tensorflow as tf
from _facts import error, show

folder = tempfile.mkdtemp()


class Part(tf.Module):
    def __init__(self, **parts):
        super().__init__()
        self.a = tf.Variable(5.0)
        self.b = tf.Variable(4.0)
        self.several = [tf.Variable(1.0), tf.Variable(2.0)]
        for name, part in parts.items():
            setattr(self, name, part)


path = tf.train.Checkpoint(Part(leaf=Part())).save(f"{folder}/ckpt")
view = tf.train.CheckpointView(path)
show("children of the root", view.children(0))
show("children of the leaf", view.children(view.children(0)["leaf"]))
show("all", view.descendants())

other = Part(another=Part())
other.several.append(tf.Variable(3.0))
other.leaf = tf.Module()
other.leaf.b = tf.Variable(7.0)
matched = view.match(other)
names = {id(other): "root", id(other.several): "several", id(other.leaf): "leaf"}


def named(objects):
    kind = lambda o: "list" if isinstance(o, list) else type(o).__name__
    return [names.get(id(o)) or (o.numpy().item() if hasattr(o, "numpy") else kind(o)) for o in objects]


matched = view.match(other)
names = {id(other): "root", id(other.several): "several", id(other.leaf): "leaf"}
show("matched", [sorted(matched), named(matched[node] for node in sorted(matched))])
both, only_saved, only_here = view.diff(other)
show("both", sorted(both) == sorted(matched))
show("only in the checkpoint", only_saved)
show("only in the program", sorted(map(str, named(only_here))))
error("no object", lambda: view.match(3))
error("no such checkpoint", lambda: tf.train.CheckpointView(f"{folder}/none"))
