"""Where variables may be made, and who may see or change how."""

import tensorflow as tf
from _facts import error, show

made = []


def noting(next_creator, **kwargs):
    made.append((kwargs["name"], kwargs["trainable"], sorted(kwargs)[:3]))
    return next_creator(**kwargs)


def doubling(next_creator, **kwargs):
    kwargs["initial_value"] = kwargs["initial_value"] * 2
    return next_creator(**kwargs)


with tf.variable_creator_scope(noting):
    with tf.variable_creator_scope(doubling):
        v = tf.Variable(3.0, name="a")
    w = tf.Variable(1.0, trainable=False)
show("created", v)
show("noted", [(name, trainable) for name, trainable, _ in made])
outside = tf.Variable(1.0)
show("after the scope", len(made))


class Once:
    def __init__(self):
        self.v = None

    @tf.function
    def __call__(self, x):
        if self.v is None:
            self.v = tf.Variable(tf.ones([2]) * 3.0)
        return self.v.assign_add(x * tf.ones([2]))


once = Once()
show("made by the first call", [once(1.0), once(1.0)])


class FromInitScope:
    v = None

    @tf.function
    def __call__(self, x):
        with tf.init_scope():
            if self.v is None:
                self.v = tf.Variable(5.0)
        return self.v * x


show("made in init_scope", FromInitScope()(tf.constant(2.0)))


class FromLambda:
    v = None

    @tf.function
    def __call__(self, x):
        if self.v is None:
            self.v = tf.Variable(lambda: tf.random.stateless_uniform([3], [1, 2]), trainable=False)
        return tf.shape(self.v) + tf.cast(x, tf.int32)


show("made from a callable", FromLambda()(1.0))


@tf.function
def every_time(x):
    v = tf.Variable(1.0)
    return v + x


error("made by every call", lambda: every_time(tf.constant(1.0)))
strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
other = tf.distribute.MirroredStrategy(["/cpu:2", "/cpu:3"])
with strategy.scope():
    mirrored = tf.Variable([1.0, 2.0])
    copied = tf.Variable(mirrored)
copied.assign_add([1.0, 1.0])
show("a copy of a mirrored one", [mirrored, copied])
plain = tf.Variable(mirrored)
show("a plain copy", plain)
error("two strategies", lambda: other.scope().__enter__() if strategy.scope().__enter__() is None else None)
