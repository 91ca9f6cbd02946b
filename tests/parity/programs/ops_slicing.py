"""Shapes, slices and places."""

import numpy as np
import tensorflow as tf
from _facts import error, show

x = tf.reshape(tf.range(24), [2, 3, 4])
show(
    "slices",
    [x[0], x[:, 1], x[..., -1], x[1, 2, 3], x[:, ::2, 1:3], x[::-1, 0, 0], x[:, tf.newaxis, 0].shape.as_list()],
)
show("tensor indices", [x[tf.constant(1), 0, 0], x[0, tf.constant(1) :, 0], tf.gather(x, [1, 0], axis=1)[0, 0]])
show("gather_nd", [tf.gather_nd(x, [[0, 1], [1, 2]]), tf.gather_nd(x, [1, 1, 1])])
show("boolean_mask", tf.boolean_mask(x, [[True, False, True], [False, False, True]]))
show("where", [tf.where(x > 20), tf.where(x > 20, x, 0)[1, 2]])
error("boolean index", lambda: x[np.array([True, False])])
error("float index", lambda: x[1.5])
show("shape", [x.shape.as_list(), tf.shape(x), tf.size(x), tf.rank(x), x.get_shape() == (2, 3, 4), len(x), x.ndim])
show(
    "reshape",
    [tf.reshape(x, [-1, 8]).shape.as_list(), tf.reshape(x, [-1])[5], tf.squeeze(tf.ones([1, 2, 1])).shape.as_list()],
)
error("cannot reshape", lambda: tf.reshape(x, [5, 5]))
error("cannot squeeze", lambda: tf.squeeze(x, 0))
error("cannot broadcast", lambda: tf.add(x, tf.ones([5], tf.int32)))
show(
    "expand", [tf.expand_dims(x, 0).shape.as_list(), tf.expand_dims(x, -1).shape.as_list(), x[:, None].shape.as_list()]
)
show("transpose", [tf.transpose(x)[0, 0], tf.transpose(x, [1, 0, 2])[0, 1]])
show("stack", [tf.stack([1, 2]), tf.stack([[1, 2], [3, 4]], axis=1), tf.unstack(tf.constant([[1, 2], [3, 4]]))])
show("concat", [tf.concat([[1, 2], [3]], 0), tf.concat([x, x], 1).shape.as_list()])
error("cannot concat", lambda: tf.concat([tf.ones([1, 2]), tf.ones([1, 3])], 0))
show(
    "split",
    [[p.shape.as_list() for p in tf.split(x, 3, axis=1)], [p.shape.as_list() for p in tf.split(x, [1, 3], axis=2)]],
)
show("tile", [tf.tile([[1, 2]], [2, 2]), tf.repeat([1, 2], [2, 1]), tf.repeat([1, 2], 2)])
show(
    "pad",
    [
        tf.pad([[1]], [[1, 0], [0, 2]]),
        tf.pad([1, 2, 3], [[2, 1]], "REFLECT"),
        tf.pad([1, 2], [[1, 1]], constant_values=9),
    ],
)
show("slice", [tf.slice(x, [0, 1, 1], [1, 2, 2]), tf.strided_slice(x, [0, 0, 0], [2, 3, 4], [1, 2, 3])])
show(
    "scatter",
    [
        tf.scatter_nd([[1], [3]], [9, 8], [5]),
        tf.tensor_scatter_nd_update([1, 2, 3], [[0]], [7]),
        tf.tensor_scatter_nd_add([1, 2, 3], [[0], [0]], [7, 1]),
    ],
)
show("reverse", [tf.reverse([1, 2, 3], [0]), tf.roll([1, 2, 3], 1, 0)])
show("sequence_mask", tf.sequence_mask([1, 3], 4))
show("one_hot", [tf.one_hot([0, 2], 3), tf.one_hot([1, -1], 2, on_value=5, off_value=-5, dtype=tf.int32)])
show(
    "sort",
    [tf.sort([3, 1, 2]), tf.argsort([3, 1, 2], direction="DESCENDING"), tf.math.top_k([1.0, 3.0, 2.0], 2).indices],
)
show("unique", [tf.unique([1, 1, 2, 4, 4]).y, tf.unique([1, 1, 2]).idx])
show("meshgrid", tf.meshgrid([1, 2], [3, 4, 5])[1])
show("range", [tf.range(3), tf.range(2, 8, 3), tf.range(0.0, 1.0, 0.25), tf.linspace(0.0, 1.0, 3)])
show("fill", [tf.fill([2], 3.0), tf.eye(2), tf.zeros([2], tf.int32), tf.ones_like(x)[0, 0], tf.zeros([0, 3])])
show(
    "cumsum",
    [tf.cumsum([1, 2, 3]), tf.cumsum([1, 2, 3], exclusive=True, reverse=True), tf.math.cumprod([1.0, 2.0, 3.0])],
)
show(
    "segments", [tf.math.segment_sum([1.0, 2.0, 3.0], [0, 0, 1]), tf.math.unsorted_segment_max([1, 5, 3], [1, 1, 0], 2)]
)
show("iteration", [int(v) for v in tf.constant([3, 1, 2])])
show("membership", [bool(tf.reduce_any(tf.constant([1, 2]) == 2))])
error("hash", lambda: hash(tf.constant(1)))
show("ensure_shape", tf.ensure_shape(x, [2, None, 4]).shape.as_list())
error("other shape", lambda: tf.ensure_shape(x, [3, None, 4]))
show(
    "broadcast",
    [tf.broadcast_to([1, 2], [2, 2]), tf.broadcast_static_shape(tf.TensorShape([2, 1]), tf.TensorShape([3])).as_list()],
)
show(
    "tensor shapes",
    [
        tf.TensorShape([None, 2]).as_list(),
        tf.TensorShape([2, 3]).num_elements(),
        tf.TensorShape([None, 2]).is_compatible_with([5, 2]),
        str(tf.TensorShape(None)),
        tf.TensorShape([1]).concatenate([2]).as_list(),
    ],
)
