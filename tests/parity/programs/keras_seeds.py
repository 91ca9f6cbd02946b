"""What `set_random_seed` and `tf.random.set_seed` seed: `tf.random`, datasets, layers, initial values, the host's generators."""

import random

import numpy as np
import tensorflow as tf
from _facts import error, show

keras = tf.keras


def draws():
    dropout = keras.layers.Dropout(0.5)
    return {
        "tf.random": tf.random.normal([3]).numpy().tolist(),
        "shuffle": [int(i) for i in tf.data.Dataset.range(20).shuffle(20)],
        "function": tf.function(lambda: tf.random.uniform([3]))().numpy().tolist(),
        "map": [float(i) for i in tf.data.Dataset.range(3).map(lambda i: tf.random.uniform([]))],
        "numpy": np.random.rand(3).tolist(),
        "python": random.random(),
        "keras.random": keras.ops.convert_to_numpy(keras.random.normal((3,))).tolist(),
        "initializer": np.asarray(keras.initializers.GlorotUniform()((2, 2))).tolist(),
        "layer": np.asarray(keras.layers.Dense(2)(tf.ones([1, 2]))).tolist(),
        "dropout": np.asarray(dropout(tf.ones([20]), training=True)).tolist(),
    }


keras.utils.set_random_seed(3)
first = draws()
keras.utils.set_random_seed(3)
again = draws()
keras.utils.set_random_seed(4)
other = draws()
for name in first:
    show(name, [first[name] == again[name], first[name] == other[name]])

tf.random.set_seed(3)
only = draws()
show("tf.random.set_seed seeds", [name for name in ("tf.random", "shuffle") if only[name] == first[name]])
error("no integer", lambda: keras.utils.set_random_seed("3"))
