"""Without staleness several workers train as TensorFlow's one does that is given the same batches in the same order."""

import numpy as np
import tensorflow as tf
from _clusters import make_cluster
from _facts import show

try:
    strategy = tf.distribute.ParameterServerStrategy(make_cluster(workers=3, servers=2), max_staleness=0)
except TypeError:  # TensorFlow has no such option, and one worker is never stale.
    strategy = tf.distribute.ParameterServerStrategy(make_cluster(workers=1, servers=2))
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

# Numbers that binary fractions of few digits hold exactly, so that sums are the same in any order.
random = np.random.RandomState(0)
batches = [(random.randint(-2, 3, (4, 3)).astype("f4"), random.randint(-2, 3, (4, 1)).astype("f4")) for _ in range(4)]
with strategy.scope():
    kernel, bias = tf.Variable([[1.0], [0.0], [-1.0]]), tf.Variable([0.0])
    steps = tf.Variable(0, dtype=tf.int64)


@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        errors = tf.matmul(x, kernel) + bias - y
        loss = tf.reduce_sum(errors * errors) / 2
    for variable, gradient in zip((kernel, bias), tape.gradient(loss, (kernel, bias)), strict=True):
        variable.assign_sub(gradient / 16)
    return loss, steps.assign_add(1)


remote = [coordinator.schedule(step, args=(tf.constant(x), tf.constant(y))) for x, y in batches]
coordinator.join()
show("losses", [float(value.fetch()[0]) for value in remote])
show("steps", [int(value.fetch()[1]) for value in remote])
show("kernel", kernel)
show("bias", bias)
