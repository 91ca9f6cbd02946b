"""`tf.raw_ops.FusedBatchNormV2` and V3, `tf.xla.experimental`, and reshapes that do not fit."""

import numpy as np
import tensorflow as tf


def show(name, function):
    try:
        print(name, function())
    except Exception as error:
        print(name, type(error).__name__, "requested shape" in str(error))


x = tf.constant(np.random.default_rng(0).normal(size=(2, 3, 3, 2)).astype("float32"))
scale, offset, mean, variance = (tf.constant([a, a + 1.0]) for a in (1.0, 2.0, 0.5, 0.7))
given = {"scale": scale, "offset": offset, "mean": mean, "variance": variance}
for is_training in (True, False):
    for factor in (1.0, 0.3):
        for operation in (tf.raw_ops.FusedBatchNormV2, tf.raw_ops.FusedBatchNormV3):
            result = operation(x=x, **given, is_training=is_training, exponential_avg_factor=factor, epsilon=0.01)
            print(is_training, factor, len(result), result.y.numpy().ravel()[:4].round(4))
            print(result.batch_mean.numpy().round(4), result.batch_variance.numpy().round(4))
            if is_training:
                print(result.reserve_space_1.numpy().round(4))
half = tf.raw_ops.FusedBatchNormV3(x=tf.cast(x, tf.float16), **given)
print(half.y.dtype, half.batch_mean.dtype, half.y.numpy().ravel()[:3])
show("rank", lambda: tf.raw_ops.FusedBatchNormV2(x=x[0], **given))
variable = tf.Variable(x)
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(tf.square(tf.raw_ops.FusedBatchNormV2(x=variable, **given).y) * x)
print(tape.gradient(loss, variable).numpy().ravel()[:5].round(3))

show("too many", lambda: tf.reshape(x, [3, 4]))
show("no multiple", lambda: tf.reshape(x, [-1, 5]))
show("two open", lambda: tf.reshape(x, [-1, -1]))
show("empty", lambda: [tf.reshape(tf.zeros([0, 3]), sizes).shape for sizes in ([-1, 0], [0, -1], [-1, 3], [2, 0, -1])])

one = tf.constant(1.0)
compiled = tf.xla.experimental.compile
show("eager", lambda: compiled(lambda a: a + 1, [one]))
show("single", lambda: tf.function(lambda a: compiled(lambda b, c: b + c, [a, 2.0]))(one))
show("pair", lambda: tf.function(lambda a: compiled(lambda b: (b, b * 2), [a]))(one))
show("mapping", lambda: tf.function(lambda a: compiled(lambda b: {"b": b, "c": b * 2}, [a]))(one))
show("no inputs", lambda: tf.function(lambda a: compiled(lambda: tf.constant(3)))(one))
show("no list", lambda: tf.function(lambda a: compiled(lambda b: b, a))(one))


def scoped(a):
    with tf.xla.experimental.jit_scope(separate_compiled_gradients=True):
        return a * 2


show("scope", lambda: tf.function(scoped)(one))
show("eager scope", lambda: scoped(one))
