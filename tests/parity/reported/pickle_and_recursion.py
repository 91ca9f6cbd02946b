import pickle

import tensorflow as tf
from _show import show


@tf.function(autograph=False)
def rec(n):
    return tf.cond(n > 0, lambda: rec(n - 1) + 1, lambda: n * 0)


show("recursive function, no signature", lambda: rec(tf.constant(5)))


@tf.function(autograph=False, input_signature=[tf.TensorSpec([], tf.int32)])
def rec2(n):
    return tf.cond(n > 0, lambda: rec2(n - 1) + 1, lambda: n * 0)


show("recursive function, signature", lambda: rec2(tf.constant(5)))
import pickled_functions as r15mod

show("pickle of a module's tf.function", lambda: pickle.loads(pickle.dumps(r15mod.sq))(tf.constant(3.0)))
c = tf.function(lambda x: x * x)
show("pickle of tf.function of builtin fn", lambda: len(pickle.dumps(tf.function(r15mod.plain))) > 0)
