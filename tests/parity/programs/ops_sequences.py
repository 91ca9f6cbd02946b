"""CTC, sampled losses, pooling with places, linear operators and initializers in functions and under tapes."""

import numpy as np
import tensorflow as tf
from _facts import show

rng = np.random.RandomState(0)
logits = tf.Variable(rng.normal(size=(5, 2, 4)).astype("f4"))
labels = tf.constant([[1, 2], [3, 0]])


@tf.function
def ctc(labels, lengths):
    with tf.GradientTape() as tape:
        losses = tf.nn.ctc_loss(labels, logits, lengths, [5, 4], blank_index=-1)
    return losses, tape.gradient(losses, logits)


losses, gradient = ctc(labels - 1 + tf.cast(labels == 0, tf.int32), tf.constant([2, 1]))
show("ctc", losses)
show("gradient of ctc", [gradient[0], tf.reduce_sum(tf.abs(gradient))])
show("gradient beyond the end", gradient[4, 1])
(decoded,), score = tf.nn.ctc_greedy_decoder(logits, [5, 4])
show("decoded", [decoded.values, decoded.dense_shape, score])
truth = tf.SparseTensor([[0, 0], [1, 0]], tf.constant([1, 2], tf.int64), [2, 1])
show("label error rate", tf.reduce_mean(tf.edit_distance(decoded, truth)))

table, biases = tf.Variable(rng.normal(size=(6, 3)).astype("f4")), tf.Variable(tf.zeros([6]))
sampled = tf.constant([4, 1], tf.int64), tf.constant([[0.5], [0.25]]), tf.constant([0.75, 1.25])
inputs = tf.constant(rng.normal(size=(2, 3)).astype("f4"))


@tf.function
def sampled_step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(
            tf.nn.sampled_softmax_loss(table, biases, tf.constant([[0], [1]]), inputs, 2, 6, sampled_values=sampled)
        )
    return loss, [tf.convert_to_tensor(g) for g in tape.gradient(loss, [table, biases])]


show("sampled softmax", sampled_step())

image = tf.Variable(np.arange(16, dtype="f4").reshape(1, 4, 4, 1) % 7)
with tf.GradientTape(persistent=True) as tape:
    pooled, places = tf.nn.max_pool_with_argmax(image, 2, 2, "VALID")
    total = tf.reduce_sum(pooled * [[[[1.0]], [[2.0]]]])
    wide = tf.reduce_sum(tf.nn.dilation2d(image, tf.zeros([2, 2, 1]), [1, 2, 2, 1], "VALID", "NHWC", [1, 1, 1, 1]))
    moved = tf.reduce_sum(tf.space_to_batch(image, [2, 2], [[0, 0], [0, 0]])[0] ** 2)
    patches = tf.reduce_sum(tf.image.extract_patches(image, [1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 1, 1], "VALID") ** 2)
show("places", places)
for name, value in {"pooling": total, "dilation": wide, "space to batch": moved, "patches": patches}.items():
    show(f"gradient of {name}", tf.squeeze(tape.gradient(value, image)))

scale = tf.Variable([1.0, 2.0, 3.0])


@tf.function
def density(x):
    factor = tf.linalg.LinearOperatorLowerTriangular(tf.linalg.diag(scale) + 0.5 * tf.linalg.diag([1.0, 1.0], k=-1))
    with tf.GradientTape() as tape:
        factor = tf.linalg.LinearOperatorLowerTriangular(tf.linalg.diag(scale) + 0.5 * tf.linalg.diag([1.0, 1.0], k=-1))
        value = -0.5 * tf.reduce_sum(factor.solvevec(x) ** 2) - factor.log_abs_determinant()
    return value, tape.gradient(value, scale)


show("density", density(tf.constant([1.0, -1.0, 2.0])))
diagonal = tf.linalg.LinearOperatorDiag(scale)
show("diagonal", [diagonal.matvec([1.0, 1.0, 1.0]), diagonal.inverse().diag_part(), diagonal.determinant()])
with tf.GradientTape() as tape:
    solved = tf.reduce_sum(
        tf.linalg.tridiagonal_solve(tf.stack([scale, scale + 4.0, scale]), tf.constant([1.0, 2.0, 3.0]))
    )
show("gradient of three diagonals", tape.gradient(solved, scale))

made = tf.Variable(tf.random_normal_initializer(stddev=0.0, mean=2.0)([2, 2]))
show("initialized", [made + 0.0, tf.zeros_initializer()([2], tf.int32), tf.constant_initializer([1, 2])([2])])
strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
with strategy.scope():
    mirrored = tf.Variable(tf.ones_initializer()([3]), name="ones")
show("in a scope", strategy.reduce("sum", strategy.run(lambda: mirrored * 2.0), axis=None))
unequal = tf.function(lambda t: (tf.reverse_sequence(t, [1, 2], 1), tf.unravel_index([3, 5], [2, 3])))
show("in a function", unequal(tf.constant([[1, 2, 3], [4, 5, 6]])))
