"""Mathematics, linear algebra and neural networks' operations."""

import numpy as np
import tensorflow as tf
from _facts import error, show

rng = np.random.RandomState(0)
x = tf.constant(rng.randn(3, 4).astype("f4"))
m = tf.constant(rng.randn(3, 3).astype("f4") + 3 * np.eye(3, dtype="f4"))
images = tf.constant(rng.rand(2, 5, 6, 3).astype("f4"))
kernel = tf.constant(rng.randn(2, 3, 3, 4).astype("f4"))
logits, labels = tf.constant(rng.randn(3, 4).astype("f4")), tf.constant([0, 3, 1])
soft = tf.nn.softmax(tf.constant(rng.randn(3, 4).astype("f4")))
total = lambda t: [
    tuple(t.shape),
    float(tf.reduce_sum(t * tf.cast(tf.reshape(tf.range(tf.size(t)), t.shape), t.dtype))),
]
for label, result in {
    "matmul": tf.matmul(x, x, transpose_b=True),
    "tensordot": tf.tensordot(x, x, [[1], [1]]),
    "einsum": tf.einsum("ij,kj->ik", x, x),
    "inv": tf.linalg.inv(m),
    "det": tf.reshape(tf.linalg.det(m), [1]),
    "solve": tf.linalg.solve(m, x),
    "cholesky": tf.linalg.cholesky(m @ tf.transpose(m)),
    "norm": tf.norm(x, axis=1),
    "l2_normalize": tf.math.l2_normalize(x, axis=1),
    "trace": tf.reshape(tf.linalg.trace(m), [1]),
    "band_part": tf.linalg.band_part(m, 1, 0),
    "diag": tf.linalg.diag([1.0, 2.0]),
    "logsumexp": tf.reduce_logsumexp(x, 1),
    "variance": tf.math.reduce_variance(x, 0),
    "std": tf.math.reduce_std(x, 0, keepdims=True),
    "erf": tf.math.erf(x),
    "lgamma": tf.math.lgamma(tf.abs(x) + 1),
    "softplus": tf.math.softplus(x),
    "clip": tf.clip_by_value(x, -0.5, 0.5),
    "clip norm": tf.clip_by_norm(x, 1.0),
    "relu": tf.nn.relu(x),
    "leaky": tf.nn.leaky_relu(x),
    "gelu": tf.nn.gelu(x),
    "gelu approximate": tf.nn.gelu(x, approximate=True),
    "elu": tf.nn.elu(x),
    "selu": tf.nn.selu(x),
    "silu": tf.nn.silu(x),
    "log_softmax": tf.nn.log_softmax(x, axis=0),
    "softmax cross entropy": tf.nn.softmax_cross_entropy_with_logits(soft, logits),
    "sparse cross entropy": tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits),
    "sigmoid cross entropy": tf.nn.sigmoid_cross_entropy_with_logits(labels=soft, logits=logits),
    "weighted cross entropy": tf.nn.weighted_cross_entropy_with_logits(soft, logits, 2.0),
    "conv": tf.nn.conv2d(images, kernel, 1, "SAME"),
    "conv strides": tf.nn.conv2d(images, kernel, [1, 2, 2, 1], "VALID"),
    "conv dilated": tf.nn.conv2d(images, kernel, 1, "SAME", dilations=2),
    "depthwise": tf.nn.depthwise_conv2d(images, kernel, [1, 1, 1, 1], "SAME"),
    "transposed": tf.nn.conv2d_transpose(images, tf.transpose(kernel, [0, 1, 3, 2]), [2, 10, 12, 4], 2, "SAME"),
    "max_pool": tf.nn.max_pool2d(images, 2, 2, "SAME"),
    "avg_pool": tf.nn.avg_pool2d(images, 3, 2, "SAME"),
    "moments": tf.nn.moments(x, [0])[1],
    "batch norm": tf.nn.batch_normalization(x, 0.1, 2.0, 0.3, 1.5, 1e-3),
    "bias": tf.nn.bias_add(x, [1.0, 2.0, 3.0, 4.0]),
    "lookup": tf.nn.embedding_lookup(x, [2, 0]),
    "lrn": tf.nn.local_response_normalization(images),
    "space to depth": tf.nn.space_to_depth(images[:, :4, :6], 2),
    "in_top_k": tf.cast(tf.math.in_top_k(labels, logits, 2), tf.float32),
    "confusion": tf.cast(tf.math.confusion_matrix([0, 1, 1], [0, 1, 0]), tf.float32),
    "bincount": tf.cast(tf.math.bincount([1, 1, 3]), tf.float32),
    "cross": tf.linalg.cross([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]),
    "add_n": tf.add_n([x, x, x]),
    "squared difference": tf.math.squared_difference(x, 1.0),
    "average loss": tf.reshape(tf.nn.compute_average_loss(tf.constant([1.0, 2.0]), global_batch_size=4), [1]),
    "regularization loss": tf.reshape(tf.nn.scale_regularization_loss([1.0, 2.0]), [1]),
    "l2_loss": tf.reshape(tf.nn.l2_loss(x), [1]),
}.items():
    show(label, total(result))
error("matmul of shapes", lambda: tf.matmul(x, x))
error("labels of shape", lambda: tf.nn.sparse_softmax_cross_entropy_with_logits(tf.constant([0, 1]), logits))
error("not square", lambda: tf.linalg.inv(x))
error("axis", lambda: tf.reduce_sum(x, 5))
error("channels", lambda: tf.nn.conv2d(images, kernel[:, :, :2], 1, "SAME"))
show("dropout of zero", tf.nn.dropout(tf.ones([3]), 0.0))
show(
    "control",
    [tf.cond(tf.constant(True), lambda: 1, lambda: 2), tf.switch_case(tf.constant(1), [lambda: 10, lambda: 20])],
)
show("map_fn", tf.map_fn(lambda r: r * 2, tf.range(3)))
show("scan", tf.scan(lambda a, b: a + b, tf.constant([1, 2, 3])))
show("while", tf.while_loop(lambda i: i < 5, lambda i: [i + 2], [tf.constant(0)])[0])
