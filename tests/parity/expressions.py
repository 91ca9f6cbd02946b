"""Expressions in TensorFlow's names, evaluated under TensorFlow and under the facade.

`x`, `y` float32 `[2, 3]`; `d` float64 `[3]`; `i`, `j` int32 `[4]`; `l` int64 `[3]`; `b` bool `[3]`; `m` float32 `[3, 3]`,
positive definite; `image` float32 `[2, 5, 6, 3]`; `kernel` float32 `[3, 3, 3, 4]`; `z` complex64 `[3]`.
"""

import namespace_expressions

SETUP = (
    """
import numpy as np
r = np.random.default_rng(0)
x, y = (tf.constant(r.normal(size=(2, 3)).astype("float32")) for _ in range(2))
d = tf.constant(r.normal(size=3))
i, j = tf.constant([3, -1, 7, 2]), tf.constant([2, 3, -4, 5])
l = tf.constant(np.array([5, 2**40, -3]))
b = tf.constant([True, False, True])
a = r.normal(size=(3, 3)).astype("float32")
m = tf.constant(a @ a.T + 3 * np.eye(3, dtype="float32"))
image = tf.constant(r.normal(size=(2, 5, 6, 3)).astype("float32"))
kernel = tf.constant(r.normal(size=(3, 3, 3, 4)).astype("float32"))
z = tf.constant(np.array([1 + 2j, -1j, 3], "complex64"))
half, brain = tf.constant([1.5, -2.25], tf.float16), tf.constant([1.5, -2.25], tf.bfloat16)
v = tf.Variable([1.0, 2.0])
"""
    + namespace_expressions.SETUP
)

CONVERSION = """
tf.constant(1) | tf.constant(1.5) | tf.constant(True) | tf.constant(2**40) | tf.constant(1 + 2j) | tf.constant([]) |
tf.constant([1, 2.5]) | tf.constant([1, True]) | tf.constant(np.arange(3)) | tf.constant(np.float64(0.1)) |
tf.constant(np.int8(3)) | tf.constant([np.float64(1)]) | tf.constant([np.float32(1), 2.0]) | tf.constant(range(3)) |
tf.constant([np.zeros(2), np.ones(2)]) | tf.constant(1, tf.float64) | tf.constant(5, shape=[2, 2]) |
tf.constant([1, 2, 3, 4], shape=[2, 2]) | tf.constant(300, tf.uint8) | tf.constant(-1, tf.uint8) | tf.constant("text") |
tf.constant(["a", "bc"]) | tf.constant(True, tf.float32) | tf.constant(np.array([1.5]), tf.int32) |
tf.constant(1.5, tf.bfloat16) | tf.constant(1.5, tf.int32) | tf.constant(1, tf.bool) | tf.constant(None) |
tf.constant([[1], [1, 2]]) | tf.constant([1, "a"]) | tf.constant([1, 2, 3], shape=[2, 2]) | tf.constant(object()) |
tf.constant(x, tf.int32) | tf.convert_to_tensor(x, tf.int32) | tf.convert_to_tensor(1, dtype_hint=tf.float32) |
tf.convert_to_tensor(1.5, dtype_hint=tf.int32) | tf.convert_to_tensor([x[0], [1.0, 2.0, 3.0]]) | tf.convert_to_tensor(v) |
tf.convert_to_tensor(tf.TensorShape([2, 3])) | tf.convert_to_tensor([v, v]) | tf.constant(2**70) |
x.numpy() | tf.constant(1.5).numpy() | x.shape.as_list() | x.get_shape().as_list() | x.shape.rank | x.shape[0] |
list(x.shape[1:]) | x.shape == (2, 3) | x.shape == [2, 3] | x.dtype.name | x.dtype == "float32" | x.dtype == np.float32 |
x.dtype.is_floating | x.dtype.size | i.dtype.max | x.set_shape([2, 3]) | x.set_shape([3, None]) | str(x.dtype) |
tf.is_tensor(x) | tf.is_tensor(1) | tf.is_tensor(v) | isinstance(x, tf.Tensor) | tf.get_static_value(i) |
tf.cast(x, tf.int32) | tf.cast([1.7, -1.7], tf.int64) | tf.cast(b, tf.float32) | tf.cast(i, tf.bool) | tf.cast(z, tf.float32) |
tf.cast(1, tf.float64) | tf.cast(300, tf.uint8) | tf.cast(x, "float64") | tf.cast(x, np.float16) | tf.saturate_cast(300, tf.uint8) |
tf.saturate_cast([-5.0, 3e9], tf.uint8) | tf.bitcast(x, tf.int32) | tf.complex([1.0], [2.0]) | tf.as_dtype("half").name |
tf.constant(1.0) * 2 | 2 * x | x + np.ones(3) | x + np.float64(2) | np.float64(2) * x | d * 0.1 | l + 1 | l + 2**40 |
d + np.array([0.1, 0.2, 0.3]) | x / 2 | i // 2 | i % 3 | -i // 2 | x ** 2 | x @ tf.transpose(y) | -x | abs(x) | x > 0 |
x == x | x != y | ~b | b & [True, True, False] | x[0] | x[:, 1] | x[..., tf.newaxis] | x[0, 1:] | x[::-1] | i[-1] | len(x)
"""

ELEMENTWISE = """
tf.abs(i) | tf.abs(x) | tf.abs(z) | tf.acos([0.5]) | tf.acosh([1.5]) | tf.asin([0.5]) | tf.asinh(x) | tf.atan(x) | tf.atanh([0.5]) |
tf.cos(x) | tf.cosh(x) | tf.exp(x) | tf.exp(d) | tf.exp(z) | tf.exp(half) | tf.exp(1) | tf.floor(x) | tf.math.ceil(x) | tf.math.rint(x) |
tf.round([0.5, 1.5, -2.5]) | tf.round(i) | tf.sigmoid(x) | tf.sign(i) | tf.sign(x) | tf.sin(d) | tf.sinh(x) | tf.sqrt([2.0]) |
tf.sqrt(4) | tf.square(i) | tf.square(x) | tf.square(l) | tf.tan(x) | tf.tanh(d) | tf.negative(i) | tf.logical_not(b) |
tf.logical_not(x) | tf.math.log([1.0, 2.0]) | tf.math.log1p([1.0]) | tf.math.log_sigmoid(x) | tf.math.expm1(x) | tf.math.erf(x) |
tf.math.erfc(x) | tf.math.erfinv([0.5]) | tf.math.erfcinv([0.5]) | tf.math.ndtri([0.3]) | tf.math.lgamma([2.5, 0.5]) | tf.math.digamma([2.5]) |
tf.math.reciprocal(x) | tf.math.reciprocal_no_nan([0.0, 2.0]) | tf.math.rsqrt([2.0]) | tf.math.is_nan([np.nan, 1.0]) |
tf.math.is_inf([np.inf, 1.0]) | tf.math.is_finite([np.inf, 1.0]) | tf.math.real(z) | tf.math.imag(z) | tf.math.conj(z) | tf.math.angle(z) |
tf.math.angle(x) | tf.math.softplus(x) | tf.math.softsign(x) | tf.math.bessel_i0([1.0]) | tf.math.bessel_i1e([1.0]) | tf.identity(x) |
tf.identity_n([x, i]) | tf.identity(v) | tf.exp(v) | tf.math.is_nan(i) | tf.abs([1, -2]) | tf.sqrt(np.array([2.0])) | tf.exp(brain) |
tf.math.sigmoid(z) | tf.tanh(np.float64(0.1))
"""

BINARY = """
tf.add(x, y) | tf.add(x, 2) | tf.add(x, 2.5) | tf.add(1, 2) | tf.add([1, 2], [3, 4]) | tf.add(x, d) | tf.add(x, i) | tf.add(d, 0.1) | tf.add(x, np.ones(3)) |
tf.add(i, np.array([1.5])) | tf.add(v, [1.0, 1.0]) | tf.add(tf.zeros([2]), tf.zeros([3])) | tf.add(i, 1.5) | tf.subtract(x, y) | tf.subtract(5.0, x) |
tf.multiply(x, y) | tf.multiply(2, x) | tf.multiply(l, 2) | tf.divide(x, y) | tf.divide(3, 2) | tf.divide(i, 2) | tf.divide(tf.constant(3, tf.int8), 2) |
tf.truediv(i, j) | tf.math.floordiv(i, 2) | tf.math.floordiv(x, 0.5) | tf.math.floormod(i, j) | tf.math.mod(x, 0.5) | tf.truncatediv(i, j) | tf.truncatemod(i, j) |
tf.pow(x, 2.0) | tf.pow(i, 2) | tf.pow([2.0], [0.5]) | tf.pow(d, 2.0) | tf.maximum(x, 0.0) | tf.maximum(i, j) | tf.minimum(x, y) | tf.minimum(3, 4) |
tf.math.squared_difference(x, y) | tf.math.divide_no_nan(x, [0.0, 1.0, 2.0]) | tf.math.multiply_no_nan([np.nan, 2.0], [0.0, 3.0]) |
tf.math.xlogy([0.0, 2.0], [0.0, 3.0]) | tf.math.xdivy([0.0, 2.0], [0.0, 3.0]) | tf.math.xlog1py([0.0, 2.0], [-1.0, 3.0]) |
tf.equal(x, x) | tf.equal(i, 3) | tf.equal(i, l) | tf.not_equal(i, j) | tf.greater(x, y) | tf.greater(i, 2) | tf.greater_equal(i, j) | tf.less(x, 0.0) |
tf.less_equal(x, y) | tf.logical_and(b, True) | tf.logical_or(b, [False, False, True]) | tf.math.logical_xor(b, True) | tf.logical_and(x, y) |
tf.atan2(x, y) | tf.math.igamma([1.0], [2.0]) | tf.math.igammac([1.0], [2.0]) | tf.math.betainc([1.0], [2.0], [0.3]) | tf.math.zeta([2.5], [1.5]) |
tf.math.nextafter(d, 2 * d) | tf.add_n([x, y, x]) | tf.add_n([i]) | tf.add_n([x, d]) | tf.add_n([]) | tf.add_n([[1.0], [2.0]]) |
tf.math.accumulate_n([x, y]) | tf.scalar_mul(2.0, x) | tf.math.scalar_mul(3, i) | tf.bitwise.bitwise_and(i, 3) | tf.bitwise.bitwise_or(i, j) |
tf.bitwise.bitwise_xor(i, j) | tf.bitwise.invert(i) | tf.bitwise.left_shift(i, 2) | tf.bitwise.right_shift(i, 1) | tf.math.add(x, y) | tf.math.pow(x, 3.0)
"""

REDUCTIONS = """
tf.reduce_sum(x) | tf.reduce_sum(x, 0) | tf.reduce_sum(x, axis=[0, 1], keepdims=True) | tf.reduce_sum(i) | tf.reduce_sum(l) | tf.reduce_sum(d) |
tf.reduce_sum(tf.constant([100, 100], tf.int8)) | tf.reduce_sum(b) | tf.reduce_sum(x, axis=5) | tf.reduce_sum(x, axis=-1) | tf.reduce_sum([1, 2]) | tf.reduce_sum(half) |
tf.reduce_mean(x) | tf.reduce_mean(i) | tf.reduce_mean([-1, -2]) | tf.reduce_mean(x, 1, keepdims=True) | tf.reduce_mean(d) | tf.reduce_mean(half) | tf.reduce_mean(z) |
tf.reduce_mean(tf.zeros([0])) | tf.reduce_max(x, 0) | tf.reduce_max(i) | tf.reduce_min(x) | tf.reduce_max(tf.zeros([0])) | tf.reduce_max(tf.zeros([0], tf.int64)) | tf.reduce_min(tf.zeros([0, 2]), 0) |
tf.reduce_prod(x) | tf.reduce_prod(i) | tf.reduce_all(b) | tf.reduce_any(b) | tf.reduce_any(x) | tf.reduce_logsumexp(x) | tf.reduce_logsumexp(x, 1) |
tf.math.reduce_std(x) | tf.math.reduce_variance(x, 1) | tf.math.reduce_variance(d) | tf.math.reduce_euclidean_norm(x) |
tf.math.reduce_euclidean_norm(i) | tf.math.count_nonzero([0, 1, 2]) | tf.math.count_nonzero(x, 0, dtype=tf.int32) | tf.math.zero_fraction([0, 1]) |
tf.argmax(x) | tf.argmax(x, 1) | tf.argmax(x, axis=-1, output_type=tf.int32) | tf.argmin(i) | tf.argmax([3, 1, 3]) | tf.argmax(x, 4) | tf.math.argmax(x, 1) |
tf.cumsum(i) | tf.cumsum(x, 1) | tf.cumsum(i, exclusive=True) | tf.cumsum(i, reverse=True) | tf.cumsum(i, exclusive=True, reverse=True) | tf.cumsum(l) | tf.cumsum(d) |
tf.math.cumprod(i) | tf.math.cumprod(x, 1, exclusive=True) | tf.math.cumulative_logsumexp(x, 1) | tf.math.cumulative_logsumexp(x, 1, reverse=True) |
tf.math.bincount([1, 1, 3]) | tf.math.bincount([1, 1, 3], minlength=6) | tf.math.bincount([1, 1, 3], maxlength=2) | tf.math.bincount([1, 1, 3], weights=[1.0, 2.0, 3.0]) |
tf.math.bincount([[1, 1], [0, 2]], axis=-1) | tf.math.bincount([1, 1, 3], binary_output=True) | tf.math.confusion_matrix([0, 1, 1], [0, 1, 0]) |
tf.math.confusion_matrix([0, 1], [1, 1], num_classes=3, weights=[0.5, 2.0], dtype=tf.float32) | tf.math.is_non_decreasing([1, 1, 2]) |
tf.math.is_strictly_increasing([1, 1, 2]) | tf.math.segment_sum([1, 2, 3], [0, 0, 2]) | tf.math.segment_mean([1.0, 2.0, 4.0], [0, 0, 1]) |
tf.math.segment_max([1, 2, 3], [0, 0, 2]) | tf.math.segment_min([1, 2, 3], [0, 0, 2]) | tf.math.segment_prod([2.0, 3.0], [0, 2]) |
tf.math.unsorted_segment_sum(x, [1, 0], 3) | tf.math.unsorted_segment_sum(i, [0, -1, 1, 1], 2) | tf.math.unsorted_segment_max(x, [1, 1], 2) |
tf.math.unsorted_segment_min(i, [0, 0, 2, 2], 3) | tf.math.unsorted_segment_mean(x, [1, 1], 2) | tf.math.unsorted_segment_prod(x, [1, 1], 2) |
tf.math.unsorted_segment_sqrt_n(x, [1, 1], 2) | tf.math.top_k(i, 2) | tf.math.top_k(x) | tf.math.top_k(i, 9) | tf.math.in_top_k([1, 0], [[0.1, 0.9], [0.2, 0.8]], 1) |
tf.math.invert_permutation([2, 0, 1]) | tf.math.l2_normalize(x) | tf.math.l2_normalize(x, 1) | tf.math.polyval([1.0, 2.0, 3.0], x) | x + [1.0, 2.0, 3.0] | [1, 2, 3] * x | x[0] == [1.0, 2.0, 3.0]
"""

ARRAYS = """
tf.zeros([2, 3]) | tf.zeros(3, tf.int64) | tf.zeros([], tf.bool) | tf.zeros([2], tf.string) | tf.ones([2], tf.float16) | tf.ones((2, 2), dtype=tf.int32) |
tf.zeros_like(i) | tf.ones_like(x, tf.int32) | tf.zeros_like(v) | tf.ones_like([1.0]) | tf.fill([2, 2], 7) | tf.fill([2], 1.5) | tf.fill([1], "a") | tf.fill([2], [1, 2]) |
tf.eye(2) | tf.eye(2, 3, dtype=tf.int32) | tf.eye(2, batch_shape=[2]) | tf.range(4) | tf.range(1, 10, 3) | tf.range(0.0, 1.0, 0.25) | tf.range(3, dtype=tf.float32) |
tf.range(5, 0, -2) | tf.range(np.int64(3)) | tf.range(2.5) | tf.range(tf.constant(3)) | tf.linspace(0.0, 1.0, 5) | tf.linspace(0, 10, 3) | tf.linspace(np.float64(0), 0.1, 4) |
tf.linspace([0.0, 1.0], [1.0, 3.0], 3, axis=-1) | tf.one_hot([0, 2], 3) | tf.one_hot([0, -1, 5], 3) | tf.one_hot([0], 2, on_value=5, off_value=1) | tf.one_hot([[1]], 2, axis=0) |
tf.one_hot([1], 3, dtype=tf.int32) | tf.one_hot([1], 2, True, False) | tf.one_hot([0, 2], 3, "a", "b") | tf.one_hot([0], 2, dtype=tf.string) | tf.one_hot(tf.constant([1], tf.uint8), 3) |
tf.where(tf.one_hot(tf.constant([1, -1], tf.int8), 300)) | tf.meshgrid([1, 2], [3, 4, 5]) | tf.meshgrid([1, 2], [3, 4], indexing="ij") |
tf.sequence_mask([1, 3]) | tf.sequence_mask(np.array([1, 3])) | tf.sequence_mask(tf.zeros([0], tf.int32)) | tf.math.count_nonzero(tf.sequence_mask(tf.constant([1, 100], tf.int8), 300), 1) |
tf.sequence_mask([1, 3], 4, tf.float32) | tf.shape(x) | tf.shape(x)[0] | tf.shape(x, out_type=tf.int64) | tf.size(x) | tf.rank(x) | tf.shape_n([x, y]) |
tf.shape(x)[0] * 2 + 1 | tf.reshape(x, [-1]) | tf.reshape(x, [3, -1]) | tf.reshape(x, (tf.shape(x)[1], -1)) | tf.reshape(x, [5]) | tf.reshape([1, 2], [2, 1]) | tf.reshape(x, tf.constant([3, 2])) |
tf.reshape(i, []) | tf.expand_dims(x, 0) | tf.expand_dims(x, -1) | tf.expand_dims(x, 5) | tf.squeeze([[[1], [2]]]) | tf.squeeze([[[1], [2]]], axis=[0]) | tf.squeeze(x, 0) |
tf.transpose(x) | tf.transpose(image, [0, 3, 1, 2]) | tf.transpose(tf.reshape(z, [1, 3]), conjugate=True) | tf.tile(x, [2, 1]) | tf.tile(x, [2]) | tf.repeat(i, 2) | tf.repeat(x, [1, 2], axis=0) |
tf.repeat(x, 2, axis=1) | tf.broadcast_to([1, 2], [2, 2]) | tf.pad(x, [[1, 0], [0, 2]]) | tf.pad(x, [[0, 0], [1, 1]], "REFLECT") | tf.pad(x, [[1, 1], [0, 0]], "symmetric") |
tf.pad(i, [[1, 1]], constant_values=9) | tf.reverse(x, [0]) | tf.reverse(x, [-1, 0]) | tf.roll(i, 1, 0) | tf.roll(x, [1, 1], [0, 1]) | tf.concat([x, y], 0) | tf.concat([x, y], axis=-1) | tf.concat([x, i], 0) |
tf.concat([tf.zeros([2]), tf.zeros([2, 2])], 0) | tf.concat([tf.shape(x)[:-1], [7]], 0) | tf.concat([[1, 2], i], 0) | tf.concat(x, 0) | tf.stack([x, y]) | tf.stack([x, y], axis=-1) | tf.stack([1, 2]) |
tf.stack([tf.shape(x)[0], 4]) | tf.stack([x, i]) | tf.unstack(x) | tf.unstack(x, axis=1) | tf.unstack(x, num=5) | tf.unstack(x[:0]) | tf.split(i, 2) | tf.split(x, [1, 2], axis=1) | tf.split(i, [1, -1]) | tf.split(x, 3, 1) |
tf.split(i, 3) | tf.slice(x, [0, 1], [2, 2]) | tf.slice(x, [1, 0], [-1, -1]) | tf.slice(x, [1, 1], [2, 2]) | tf.strided_slice(x, [0, 0], [2, 3], [1, 2]) | tf.where(b, [1, 2, 3], [4, 5, 6]) | tf.where(b) |
tf.where(x > 0, x, 0.0) | tf.where(b, 1.0, [2.0, 3.0, 4.0]) | tf.where(b, x, y) | tf.where(b, 1, None) | tf.boolean_mask(i, [True, False, True, True]) | tf.boolean_mask(x, [True, False]) |
tf.boolean_mask(x, [True, False, True], axis=1) | tf.gather(x, [1, 0]) | tf.gather(x, [2, 0], axis=1) | tf.gather(i, 2) | tf.gather(x, [[1], [0]], batch_dims=1) | tf.gather(l, [1]) | tf.gather(["a", "b"], [1]) |
tf.gather_nd(x, [[0, 1], [1, 2]]) | tf.gather_nd(x, [[1]]) | tf.gather_nd(x, [[1], [0]], batch_dims=1) | tf.scatter_nd([[1], [1], [3]], [1, 2, 3], [5]) | tf.tensor_scatter_nd_update(i, [[0], [2]], [9, 8]) |
tf.tensor_scatter_nd_add(x, [[0]], [[1.0, 2.0, 3.0]]) | tf.tensor_scatter_nd_sub(i, [[1]], [5]) | tf.tensor_scatter_nd_max(i, [[1]], [5]) | tf.tensor_scatter_nd_min(i, [[1]], [-5]) |
tf.unique([3, 1, 3, 2]) | tf.unique_with_counts([3, 1, 3]) | tf.unique(x) | tf.dynamic_partition([1, 2, 3], [1, 0, 1], 2) | tf.dynamic_stitch([[0, 2], [1]], [[1, 3], [2]]) |
tf.sort(i) | tf.sort(x, direction="DESCENDING") | tf.sort(x, axis=0) | tf.sort(i, direction="UP") | tf.argsort(i) | tf.argsort([2, 1, 2], direction="DESCENDING") | tf.argsort([1, 1, 0], stable=True) |
tf.searchsorted([1, 3, 5], [0, 3, 6]) | tf.searchsorted([1, 3, 5], [3], side="right", out_type=tf.int64) | tf.searchsorted([[1, 3], [2, 4]], [[2], [2]]) | tf.ensure_shape(x, [2, None]) | tf.ensure_shape(x, [3, 3]) |
tf.broadcast_static_shape(tf.TensorShape([2, 1]), tf.TensorShape([3])).as_list() | tf.broadcast_dynamic_shape([2, 1], [3]) | tf.clip_by_value(x, -0.5, 0.5) | tf.clip_by_value(i, 0, 3) |
tf.clip_by_norm(x, 1.0) | tf.clip_by_norm(x, 1.0, axes=[1]) | tf.clip_by_norm([0.0], 1.0) | tf.linalg.global_norm([x, y, None]) | tf.clip_by_global_norm([x, None, y], 1.0) |
tf.clip_by_global_norm([x], 100.0) | tf.zeros(tf.shape(x)) | tf.ones([tf.shape(x)[0], 2]) | tf.zeros(x.shape) | tf.cast(tf.shape(x)[0], tf.float32) / 3.0 |
tf.reduce_prod(tf.shape(x)) | tf.TensorShape([2, None]).concatenate([3]).as_list() | tf.TensorShape(None).rank | tf.TensorShape([2, 3]).num_elements() | tf.TensorSpec([2, None], tf.int32) == tf.TensorSpec([2, None], tf.int32) |
repr(tf.TensorSpec([2, None], tf.int32, "n")) | repr(tf.TensorShape([2, None])) | str(tf.TensorShape([2, None])) | tf.TensorSpec.from_tensor(x).shape.as_list() | tf.TensorShape([2]).assert_has_rank(3)
"""

LINALG = """
tf.matmul(x, tf.transpose(y)) | tf.matmul(x, y, transpose_b=True) | tf.matmul(x, y) | tf.matmul(x, i) | tf.matmul([[1, 2]], [[3], [4]]) | tf.matmul(x, y, transpose_a=True) |
tf.matmul(tf.cast(x, tf.float64), [[0.1], [0.2], [0.3]]) | tf.matmul(tf.ones([2, 2, 3]), tf.ones([3, 4])) | tf.matmul([1.0], [2.0]) | tf.linalg.matvec(x, [1.0, 2.0, 3.0]) | tf.tensordot(x, y, [[1], [1]]) |
tf.tensordot(x, y, 2) | tf.einsum("ij,kj->ik", x, y) | tf.einsum("ij->j", x) | tf.norm(x) | tf.norm(x, axis=1) | tf.norm(x, 1, axis=0) | tf.norm(x, np.inf, axis=1, keepdims=True) | tf.norm(m, "fro", axis=[0, 1]) |
tf.norm(i) | tf.linalg.normalize(x, axis=1) | tf.linalg.det(m) | tf.linalg.inv(m) | tf.linalg.cholesky(m) | tf.linalg.solve(m, tf.ones([3, 1])) | tf.linalg.trace(m) | tf.linalg.trace([[1, 2], [3, 4]]) |
tf.linalg.diag([1.0, 2.0]) | tf.linalg.diag([1, 2], k=1) | tf.linalg.diag_part(m) | tf.linalg.diag_part(m, k=-1) | tf.linalg.set_diag(m, [1.0, 2.0, 3.0]) | tf.linalg.band_part(m, 1, 0) | tf.linalg.band_part(m, -1, 0) |
tf.linalg.logdet(m) | tf.linalg.slogdet(m) | tf.linalg.svd(m, compute_uv=False) | tf.linalg.eigvalsh(m) | tf.linalg.triangular_solve(m, tf.ones([3, 1])) | tf.linalg.cholesky_solve(tf.linalg.cholesky(m), tf.ones([3, 1])) |
tf.linalg.lstsq(tf.transpose(x), tf.ones([3, 1])) | tf.linalg.lstsq(x, tf.ones([2, 1])) | tf.linalg.pinv(x) | tf.linalg.matrix_rank(m) | tf.linalg.adjoint(tf.reshape(z, [1, 3])) | tf.linalg.matrix_transpose(x) |
tf.linalg.expm(x[:, :2]) | tf.linalg.sqrtm(m) | tf.linalg.cross([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]) | tf.linalg.tensor_diag([1, 2]) | tf.linalg.tensor_diag_part([[1, 2], [3, 4]]) | tf.abs(tf.linalg.qr(m).r) |
tf.linalg.lu(m) | tf.linalg.eye(2)
"""

NN = """
tf.nn.relu(x) | tf.nn.relu([-1, 2]) | tf.nn.relu6([7.0, -1.0]) | tf.nn.relu6([7, -1]) | tf.nn.leaky_relu(x) | tf.nn.leaky_relu([-1, 1]) | tf.nn.elu(x) | tf.nn.selu(x) | tf.nn.gelu(x) | tf.nn.gelu(x, approximate=True) |
tf.nn.silu(x) | tf.nn.swish(x, 2.0) | tf.nn.softplus(x) | tf.nn.softsign(x) | tf.nn.softmax(x) | tf.nn.softmax(x, axis=0) | tf.nn.softmax(d) | tf.nn.softmax([1, 2]) | tf.nn.log_softmax(x) | tf.nn.sigmoid(x) | tf.nn.tanh(x) | tf.nn.crelu(x) |
tf.nn.sparse_softmax_cross_entropy_with_logits([0, 2], x) | tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.constant([0, 2], tf.int64), logits=x) | tf.nn.sparse_softmax_cross_entropy_with_logits([0], x) |
tf.nn.sparse_softmax_cross_entropy_with_logits([0.5, 1.0], x) | tf.nn.softmax_cross_entropy_with_logits([[1, 0, 0], [0, 0, 1]], x) | tf.nn.softmax_cross_entropy_with_logits([[0.2, 0.8], [1.0, 0.0], [0.5, 0.5]], tf.transpose(x), axis=1) |
tf.nn.sigmoid_cross_entropy_with_logits(tf.abs(y), x) | tf.nn.sigmoid_cross_entropy_with_logits([1.0], [1.0, 2.0]) | tf.nn.sigmoid_cross_entropy_with_logits(labels=None, logits=x) | tf.nn.weighted_cross_entropy_with_logits(tf.abs(y), x, 2.0) |
tf.nn.log_poisson_loss(tf.abs(y), x) | tf.nn.log_poisson_loss([1.0, 3.0], [0.5, 1.0], compute_full_loss=True) | tf.nn.l2_loss(x) | tf.nn.compute_average_loss([1.0, 2.0]) | tf.nn.compute_average_loss([1, 2, 3]) | tf.nn.compute_average_loss(1.0) |
tf.nn.compute_average_loss([1.0, 2.0], global_batch_size=4) | tf.nn.compute_average_loss([1.0, 2.0], global_batch_size=4.0) | tf.nn.compute_average_loss([1.0, 2.0], global_batch_size=0) | tf.nn.compute_average_loss(tf.zeros([0])) |
tf.nn.compute_average_loss([1.0, 2.0], sample_weight=[[1.0], [2.0]]) | tf.nn.compute_average_loss(x, sample_weight=[1.0, 2.0]) | tf.nn.compute_average_loss(d) | tf.nn.compute_average_loss(x[0], sample_weight=[1.0, 2.0, 3.0]) | tf.nn.compute_average_loss(half, [1.0, 0.5]) |
tf.nn.compute_average_loss([1.0], global_batch_size=-1) | tf.nn.scale_regularization_loss([1.0, 2.0]) | tf.nn.scale_regularization_loss(2) | tf.nn.dropout(x, 0) | tf.nn.dropout(i, 0.5) | tf.nn.dropout(x, 1.5) |
tf.nn.conv2d(image, kernel, 1, "SAME") | tf.nn.conv2d(image, kernel, 2, "SAME") | tf.nn.conv2d(image, kernel, [1, 2, 1, 1], "VALID") | tf.nn.conv2d(image, kernel, 1, [[0, 0], [1, 2], [0, 1], [0, 0]]) | tf.nn.conv2d(image, kernel, 1, "SAME", dilations=2) |
tf.nn.conv2d(image, kernel[:, :, :2], 1, "SAME") | tf.nn.conv1d(image[0], kernel[0], 2, "SAME") | tf.nn.conv3d(image[None], kernel[None], [1] * 5, "SAME") | tf.nn.convolution(image, kernel) | tf.nn.convolution(image, kernel, 2, "SAME") |
tf.nn.conv2d_transpose(image, tf.reshape(kernel, [3, 3, 4, 3]), [2, 10, 12, 4], 2) | tf.nn.conv2d_transpose(image, tf.reshape(kernel, [3, 3, 4, 3]), [2, 7, 8, 4], 1, "VALID") | tf.nn.depthwise_conv2d(image, kernel[..., :2], [1, 1, 1, 1], "SAME") |
tf.nn.separable_conv2d(image, kernel[..., :1], tf.ones([1, 1, 3, 2]), [1, 1, 1, 1], "VALID") | tf.nn.atrous_conv2d(image, kernel, 2, "SAME") | tf.nn.max_pool2d(image, 2, 2, "SAME") | tf.nn.max_pool2d(image, [3, 2], [2, 1], "VALID") |
tf.nn.avg_pool2d(image, 2, 2, "SAME") | tf.nn.avg_pool2d(image, 3, 1, "VALID") | tf.nn.max_pool(image, 2, 1, "SAME") | tf.nn.avg_pool(image, 2, 2, "VALID") | tf.nn.max_pool1d(image[0], 2, 2, "VALID") | tf.nn.avg_pool1d(image[0], 2, 2, "SAME") |
tf.nn.max_pool3d(image[None], 2, 2, "SAME") | tf.nn.avg_pool3d(image[None], 2, 2, "SAME") | tf.nn.pool(image, [2, 2], "MAX") | tf.nn.pool(image, [2, 2], "AVG", [2, 2], "SAME") | tf.nn.space_to_depth(image[:, :4], 2) | tf.nn.depth_to_space(tf.ones([1, 2, 2, 8]), 2) |
tf.nn.bias_add(x, [1.0, 2.0, 3.0]) | tf.nn.bias_add(x, [1.0]) | tf.nn.bias_add(image, [1.0, 2.0, 3.0, 4.0, 5.0], "NCHW") | tf.nn.moments(x, [0]) | tf.nn.moments(image, [0, 1, 2]) | tf.nn.moments(x, 1, keepdims=True) | tf.nn.moments(half, [0]) |
tf.nn.weighted_moments(x, [0], [[1.0], [3.0]]) | tf.nn.sufficient_statistics(x, [0])[:3] | tf.nn.normalize_moments(2.0, [1.0], [3.0], None) | tf.nn.batch_normalization(x, x[0], tf.exp(x[1]), None, y[0], 0.1) |
tf.nn.batch_normalization(x, tf.zeros([3]), tf.ones([3]), tf.ones([3]), None, 1e-3) | tf.nn.local_response_normalization(image) | tf.nn.lrn(image, 1, 2.0, 0.5, 0.75) | tf.nn.l2_normalize(x, 0) | tf.nn.zero_fraction(x) |
tf.nn.top_k(x, 2) | tf.nn.top_k(x, 2, index_type=tf.int64) | tf.nn.in_top_k([1, 0], [[0.1, 0.9], [0.2, 0.8]], 1) | tf.nn.embedding_lookup(x, [1, 0, 1]) | tf.nn.embedding_lookup(x, [[1]], max_norm=0.5) | tf.nn.embedding_lookup(v, [1]) |
tf.stop_gradient(x) | tf.nn.conv2d(image, x, 1, "SAME") | tf.nn.conv2d(image, kernel[:, :, :0], 1, "SAME")
"""

CONTROL = """
tf.cond(tf.constant(True), lambda: x, lambda: y) | tf.cond(b[1], lambda: 1, lambda: 2) | tf.switch_case(tf.constant(1), [lambda: 1, lambda: 2]) | tf.switch_case(tf.constant(9), {0: lambda: x, 1: lambda: y}) | tf.switch_case(tf.constant(0), {0: lambda: x, 3: lambda: y}) |
tf.case([(b[1], lambda: 1), (b[0], lambda: 2)], default=lambda: 3) | tf.while_loop(lambda n: n < 5, lambda n: [n + 1], [tf.constant(0)]) | tf.while_loop(lambda n, s: n < 5, lambda n, s: (n + 1, s + n), (0, 0)) |
tf.while_loop(lambda n: True, lambda n: [n + 1], [tf.constant(0)], maximum_iterations=3) | tf.map_fn(lambda t: t * 2.0, x) | tf.map_fn(lambda p: p[0] + p[1], (x, y), fn_output_signature=tf.float32) | tf.vectorized_map(tf.reduce_sum, x) |
tf.scan(lambda s, t: s + t, i) | tf.scan(lambda s, t: s + t, x, initializer=tf.zeros([3])) | tf.scan(lambda s, t: s - t, i, reverse=True) | tf.foldl(lambda s, t: s * 2 + t, i) | tf.foldr(lambda s, t: s * 2 + t, i) | tf.foldl(lambda s, t: s + t, x, initializer=tf.ones([3])) |
tf.group(x) | tf.no_op() | tf.tuple([x, i]) | tf.executing_eagerly() | tf.inside_function() | tf.numpy_function(np.sum, [x], tf.float32) | tf.py_function(lambda t: t + 1.0, [x], tf.float32) | tf.py_function(lambda t: (t, t), [x], [tf.float32, tf.float32]) |
tf.nest.flatten({"b": 1, "a": [2, None]}) | tf.nest.map_structure(lambda p, q: p + q, [1, (2,)], [3, (4,)]) | tf.nest.pack_sequence_as([0, {"k": 0}], [5, 6]) | tf.nest.is_nested([1]) | tf.nest.is_nested("a") | tf.nest.map_structure(tf.square, {"x": x}) |
tf.nest.pack_sequence_as([0], [1, 2]) | tf.nest.assert_same_structure([1], [2, 3]) | tf.nest.assert_same_structure([1], (1,)) | tf.debugging.assert_equal(x, x) | tf.debugging.assert_equal(i, j) | tf.debugging.assert_less(i, 10) | tf.debugging.assert_less(i, 0) |
tf.debugging.assert_near(x, x + 1e-9) | tf.debugging.assert_near(x, y) | tf.debugging.assert_positive(i) | tf.debugging.assert_non_negative([0, 1]) | tf.debugging.assert_rank(x, 2) | tf.debugging.assert_rank(x, 3) | tf.debugging.assert_rank_at_least(x, 3) |
tf.debugging.assert_rank_in(x, [1, 2]) | tf.debugging.assert_scalar(x) | tf.debugging.assert_integer(x) | tf.debugging.assert_integer(i) | tf.debugging.assert_type(x, tf.int32) | tf.debugging.assert_shapes([(x, ("N", 3)), (i, ("M",))]) |
tf.debugging.assert_shapes([(x, ("N", 3)), (i, ("N",))]) | tf.debugging.assert_all_finite(x, "text") | tf.debugging.assert_all_finite([np.nan], "text") | tf.debugging.check_numerics([np.inf], "text") | tf.debugging.Assert(False, [i]) | tf.debugging.assert_none_equal(i, j) |
tf.debugging.assert_proper_iterable([x]) | tf.debugging.assert_proper_iterable(x) | tf.debugging.is_numeric_tensor(x) | tf.debugging.assert_same_float_dtype([x, y]).name | tf.debugging.get_log_device_placement() | tf.config.list_physical_devices("CPU")[0].name |
tf.random.uniform([2, 3]).shape.as_list() | tf.random.uniform([2], maxval=5, dtype=tf.int32).dtype.name | tf.random.uniform([2], dtype=tf.int32) | tf.random.normal([2], dtype=tf.float64).dtype.name | tf.random.categorical([[0.0, 1.0]], 4).dtype.name |
tf.random.categorical([[0.0, 1.0]], 4).shape.as_list() | tf.random.gamma([2], [1.0, 2.0]).shape.as_list() | tf.random.poisson([2], [1.0, 2.0]).dtype.name | tf.sort(tf.random.shuffle([3, 1, 2])) | tf.random.stateless_uniform([2], [1, 2], 0, 9, tf.int64).dtype.name |
tf.random.stateless_categorical([[0.0, 1.0]], 4, [1, 2]).dtype.name | tf.random.split([1, 2], 3).shape.as_list() | tf.random.split([1, 2], 3).dtype.name | tf.random.Generator.from_seed(1).normal([2]).shape.as_list() | tf.random.Generator.from_seed(1).make_seeds(3).shape.as_list() |
tf.random.Generator.from_seed(1).make_seeds(3).dtype.name | len(tf.random.Generator.from_seed(1).split(3)) | tf.random.stateless_normal([2], [1, 2, 3]) | tf.errors.NotFoundError(None, None, "text").message | tf.errors.OutOfRangeError(None, None, "text").error_code |
issubclass(tf.errors.InvalidArgumentError, tf.errors.OpError) | str(tf.errors.AbortedError(None, None, "text")) | tf.io.gfile.exists("/nowhere/at/all") | tf.io.gfile.listdir("/nowhere/at/all") | tf.io.gfile.rmtree("/nowhere/at/all") | tf.io.gfile.join("a", "b") |
tf.__version__[:2] | tf.newaxis is None | tf.control_dependencies([]).__enter__() is None or True
"""

WIDE = """
tf.argmax(d) | tf.argmin(l) | tf.argmax([[1.0, 2.0]] + d[:2] * [[1.0], [2.0]], 1) | tf.fill([2], np.int64(2**40)) | tf.zeros([2], tf.int64) | tf.ones_like(d) | tf.linalg.diag(l) | tf.reduce_max(l[None], [0], keepdims=True) | tf.reduce_max(l, 5) | tf.argsort(d) | tf.argsort(l, direction="DESCENDING") | tf.sort(d) | tf.sort(l) |
tf.math.top_k(d, 2) | tf.math.top_k(l, 2) | tf.reduce_max(d) | tf.reduce_max(l) | tf.reduce_min(l) | tf.reduce_min(d, 0, keepdims=True) | tf.reduce_mean(l) | tf.reduce_prod(d) | tf.reduce_logsumexp(d) | tf.math.reduce_std(d) |
tf.cumsum(d, exclusive=True) | tf.math.cumprod(d) | tf.math.cumulative_logsumexp(d) | tf.unique(l) | tf.where(d > 0, d, 0.1) | tf.gather(d, [2, 0]) | tf.gather_nd(l, [[1]]) | tf.scatter_nd([[1]], d[:1], [3]) |
tf.tensor_scatter_nd_add(l, [[0]], np.array([2**40])) | tf.tensor_scatter_nd_max(d, [[0]], [9.0]) | tf.math.unsorted_segment_sum(d, [0, 0, 1], 2) | tf.math.unsorted_segment_max(l, [0, 0, 1], 3) | tf.math.segment_mean(d, [0, 0, 1]) |
tf.math.segment_min(l, [0, 0, 2]) | tf.math.bincount([1, 2], weights=np.array([0.1, 0.2])) | tf.math.confusion_matrix([0, 1], [1, 1], dtype=tf.int64) | tf.searchsorted(np.array([1, 2**40]), np.array([2**39])) | tf.concat([d, d], 0) |
tf.stack([d, [1.0, 2.0, 0.1]]) | tf.split(d, 3) | tf.tile(d, [2]) | tf.repeat(l, 2) | tf.pad(d, [[1, 1]], constant_values=0.1) | tf.reverse(d, [0]) | tf.roll(l, 1, 0) | tf.one_hot([1], 2, on_value=np.float64(0.1), off_value=np.float64(0)) |
tf.one_hot(l, 6, dtype=tf.float64) | tf.fill([2], np.float64(0.1)) | tf.eye(2, dtype=tf.float64) | tf.range(np.float64(0.1), 1.0, 0.3) | tf.range(np.int64(2**40), np.int64(2**40 + 2)) | tf.sequence_mask(np.array([1, 2]), 3, tf.int64) |
tf.clip_by_value(d, -0.1, 0.1) | tf.clip_by_value(l, 0, 2**35) | tf.clip_by_norm(d, 0.1) | tf.clip_by_global_norm([d], 0.1) | tf.maximum(d, 0.1) | tf.minimum(l, 2**35) | tf.pow(d, 2.0) | tf.math.floordiv(l, 2**20) | tf.math.floormod(l, 7) |
tf.divide(l, 3) | tf.math.divide_no_nan(d, 0.1) | tf.math.xlogy(d, 0.1) | tf.math.squared_difference(d, 0.1) | tf.equal(l, 2**40) | tf.less(d, 0.1) | tf.sqrt(tf.abs(d)) | tf.math.log(tf.abs(d)) | tf.sigmoid(d) | tf.math.erf(d) | tf.math.lgamma(tf.abs(d)) |
tf.math.expm1(d) | tf.math.log1p(tf.abs(d)) | tf.round(d * 10.0) | tf.floor(d) | tf.sign(l) | tf.cast(d, tf.int64) | tf.cast(l, tf.float64) | tf.cast(d, tf.float32) | tf.cast(l, tf.int32) | tf.cast(2**40 + 1, tf.int64) | tf.nn.softmax(d) | tf.nn.log_softmax(d) | tf.nn.relu(d) |
tf.nn.elu(d) | tf.nn.selu(d) | tf.nn.silu(d) | tf.nn.softplus(d) | tf.nn.relu6(d * 5.0) | tf.nn.sparse_softmax_cross_entropy_with_logits([1], d[None]) |
tf.nn.softmax_cross_entropy_with_logits([[0.1, 0.2, 0.7]], d[None]) | tf.nn.sigmoid_cross_entropy_with_logits(tf.abs(d), d) | tf.nn.l2_loss(d) | tf.nn.moments(d, 0) | tf.nn.bias_add(d[None], [0.1, 0.2, 0.3]) | tf.nn.batch_normalization(d, d[0], tf.abs(d), d, d, 0.1) |
tf.nn.in_top_k([1], [[0.1, 0.9]], 1) | tf.nn.max_pool1d(tf.reshape(d, [1, 3, 1]), 2, 1, "SAME") | tf.nn.avg_pool1d(tf.reshape(d, [1, 3, 1]), 2, 1, "SAME") | tf.nn.conv1d(tf.reshape(d, [1, 3, 1]), tf.reshape(d, [3, 1, 1]), 1, "SAME") |
tf.matmul(d[None], d[:, None]) | tf.einsum("i,j->ij", d, d) | tf.tensordot(d, d, 1) | tf.norm(d) | tf.linalg.inv(tf.linalg.diag(d)) | tf.linalg.det(tf.linalg.diag(d)) | tf.linalg.cholesky(tf.linalg.diag(tf.abs(d))) |
tf.linalg.solve(tf.linalg.diag(d), d[:, None]) | tf.linalg.svd(tf.linalg.diag(d), compute_uv=False) | tf.linalg.eigvalsh(tf.linalg.diag(d)) | tf.linalg.band_part(tf.linalg.diag(d), 0, 0) | tf.linalg.trace(tf.linalg.diag(l)) | tf.linalg.slogdet(tf.linalg.diag(d)) |
tf.linalg.matrix_rank(tf.linalg.diag(d)) | tf.linalg.lstsq(tf.linalg.diag(d), d[:, None]) | tf.linspace(np.float64(0.1), 0.7, 4) | tf.scan(lambda s, t: s + t, d) | tf.foldl(lambda s, t: s + t, l) | tf.map_fn(lambda t: t * 0.1, d) | tf.add_n([d, d]) | tf.add_n([l, l]) |
tf.math.l2_normalize(d) | tf.debugging.assert_near(d, d + 1e-17) | tf.nest.map_structure(tf.square, [d]) | tf.Variable(d) * 0.1 | tf.Variable(l) + 2**40 | tf.constant(np.array([1, 2**40])) | tf.constant([0.1, 0.2], tf.float64)
"""

GROUPS = {
    "wide": WIDE,
    "conversion": CONVERSION,
    "elementwise": ELEMENTWISE,
    "binary": BINARY,
    "reductions": REDUCTIONS,
    "arrays": ARRAYS,
    "linalg": LINALG,
    "nn": NN,
    "control": CONTROL,
    **namespace_expressions.GROUPS,
}


def expressions(group):
    """List a group's expressions."""
    return [part.strip() for part in GROUPS[group].replace("\n", " ").split(" | ") if part.strip()]
