"""`tf.Module`: what is found in containers, in which order, and restored into them."""

import os
import tempfile

import tensorflow as tf
from _facts import error, show


class Leaf(tf.Module):
    def __init__(self, value, name=None):
        super().__init__(name=name)
        self.v = tf.Variable(value, name="v")


class Tree(tf.Module):
    def __init__(self):
        super().__init__(name="tree")
        self.z = Leaf(1.0)
        self.tuple = (Leaf(2.0), [Leaf(3.0), {"k": Leaf(4.0)}])
        self.dict = {"b": tf.Variable(5.0), "a": Leaf(6.0)}
        self.frozen = tf.Variable(7.0, trainable=False)
        self.same = self.z
        self.text, self.number, self.nothing = "text", 3, None


tree = Tree()
values = lambda variables: [float(v.numpy()) for v in variables]
show("variables", values(tree.variables))
show("trainable", values(tree.trainable_variables))
show("non-trainable", values(tree.non_trainable_variables))
show("submodules", [m.name for m in tree.submodules])
show("types", [type(tree.variables).__name__, type(tree.submodules).__name__])
tree.list = []
tree.list.append(Leaf(8.0, name="eighth"))
tree.list.extend([Leaf(9.0), tf.Variable(10.0)])
tree.dict["c"] = tf.Variable(11.0)
show("after changes", values(tree.variables))
show("a list is a list", [isinstance(tree.list, list), len(tree.list), isinstance(tree.dict, dict), tree.dict["c"]])
tree.list, tree.dict = tree.list[:-1], {"a": tree.dict["a"]}
show("replaced", values(tree.variables))
del tree.z
show("still by its other name", values(tree.variables))


class Scoped(tf.Module):
    @tf.Module.with_name_scope
    def __call__(self):
        """Make a variable."""
        self.w = tf.Variable(1.0, name="w")
        return self.w


show("docstring", Scoped.__call__.__doc__)
scoped = Scoped(name="outer")
scoped()
show("call", scoped.w)
show("default name", Scoped().name)
error("bad names", lambda: tf.Module(name="1st"))
error("empty name", lambda: tf.Module(name="a b"))


class Unfinished(tf.Module):
    def __init__(self):
        self.w = tf.Variable(1.0)


show("without super().__init__", values(Unfinished().variables))


@tf.function
def total(module):
    return tf.add_n([v * 2.0 for v in module.variables])


show("argument of a function", total(tree))
tree.first_of_two, tree.a_second = (Leaf(12.0),) * 2
folder = tempfile.mkdtemp()
path = tf.train.Checkpoint(tree=tree).save(os.path.join(folder, "c"))
suffix = "/.ATTRIBUTES/VARIABLE_VALUE"
show("keys", [k.removesuffix(suffix) for k, _ in tf.train.list_variables(path) if k.endswith(suffix)])
strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
with strategy.scope():
    other = Tree()
    for variable in other.variables:
        variable.assign(0.0)
    tf.train.Checkpoint(tree=other).restore(path).expect_partial()
show("restored", values(other.variables))
