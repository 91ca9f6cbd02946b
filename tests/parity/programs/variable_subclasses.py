"""Subclasses of tf.Variable beside creators of variables, and modules that have their own `variables`."""

import tensorflow as tf


class Held(tf.Variable):
    def __init__(self, value, name=None):
        self.held = value
        self._name = name

    name = property(lambda self: self._name)


asked = []


def hold(next_creator, **kwargs):
    asked.append(sorted(kwargs))
    return Held(tf.convert_to_tensor(kwargs["initial_value"]), kwargs["name"])


with tf.variable_creator_scope(hold):
    made = tf.Variable(tf.ones([2]), name="made")
    direct = Held(tf.zeros([1]), name="direct")
print(type(made).__name__, made.held, made.name, direct.held, direct.name, isinstance(made, tf.Variable))
print(len(asked), asked[0])


class Picky(tf.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = tf.Variable(1.0), tf.Variable(2.0, trainable=False)

    @property
    def variables(self):
        raise ValueError("ask for others")


picky = Picky()
print([v.numpy() for v in picky.trainable_variables], [v.numpy() for v in picky.non_trainable_variables])
