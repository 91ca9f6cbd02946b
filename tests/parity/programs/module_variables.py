"""`tf.Module`: names, variables and submodules."""

import tensorflow as tf
from _facts import error, show


class Dense(tf.Module):
    def __init__(self, inputs, outputs, name=None):
        super().__init__(name=name)
        self.w = tf.Variable(tf.ones([inputs, outputs]), name="w")
        self.b = tf.Variable(tf.zeros([outputs]), name="b", trainable=False)

    def __call__(self, x):
        return x @ self.w + self.b


class TwoLayers(tf.Module):
    def __init__(self):
        super().__init__()
        self.zlast = Dense(3, 1)
        self.first = Dense(2, 3)
        self.scale = tf.Variable(2.0, name="scale")
        self.many = [Dense(1, 1, name="in_list"), {"b": Dense(1, 2), "a": tf.Variable(5.0, name="a")}]
        self.shared = self.first

    @tf.Module.with_name_scope
    def __call__(self, x):
        return self.zlast(self.first(x)) * self.scale


model = TwoLayers()
show("name", [model.name, model.first.name, model.many[0].name])
show("shapes", [tuple(v.shape) for v in model.variables])
show("names", [v.name for v in model.variables])
show("trainable", [tuple(v.shape) for v in model.trainable_variables])
show("not trainable", [tuple(v.shape) for v in model.non_trainable_variables])
show("submodules", [m.name for m in model.submodules])
show("call", model(tf.constant([[1.0, 2.0]])))
error("bad name", lambda: tf.Module(name="not valid"))
show("CamelCase", type("MyHTTPModule2D", (tf.Module,), {})().name)


class Lazy(tf.Module):
    def __init__(self):
        super().__init__()
        self.built = False

    def __call__(self, x):
        if not self.built:
            self.w = tf.Variable(tf.fill([x.shape[-1]], 3.0))
            self.built = True
        return x * self.w


lazy = Lazy()
show("no variables yet", len(lazy.variables))
show("lazy", lazy(tf.ones([2])))
show("now", [tuple(v.shape) for v in lazy.variables])

with tf.GradientTape() as tape:
    loss = tf.reduce_sum(model(tf.constant([[1.0, 2.0]])))
gradients = tape.gradient(loss, model.trainable_variables)
show("gradients", [None if g is None else g for g in gradients])
