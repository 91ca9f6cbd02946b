"""Names of scopes that are entered again, by their full names, and by modules."""

import tensorflow as tf

with tf.name_scope("a"), tf.name_scope("b") as b:
    print(b, tf.Variable(1.0, name="v").name)
    with tf.name_scope("x/") as scope:
        print(scope, tf.Variable(1.0, name="v").name)
    with tf.name_scope("") as scope:
        print(repr(scope), tf.Variable(1.0, name="v").name)
    c = tf.name_scope("c")
    with c as one:
        print(one)
        with c as two:
            print(two, tf.Variable(1.0, name="v").name)
        print(tf.Variable(1.0, name="v").name, c.name)
    print(tf.Variable(1.0, name="v").name)


class Scaled(tf.Module):
    def __init__(self, name=None):
        super().__init__(name=name)
        with self.name_scope:
            self.v = tf.Variable(1.0, name="v")

    @tf.Module.with_name_scope
    def name_of_new(self):
        with self.name_scope:
            return tf.Variable(1.0, name="w").name


with tf.name_scope("outer"):
    scaled = Scaled()
print(scaled.v.name, scaled.name_scope.name, scaled.name, scaled.name_of_new())
with tf.name_scope("elsewhere"):
    print(scaled.name_of_new(), Scaled("other").v.name)
