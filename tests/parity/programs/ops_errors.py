"""Values that operations cannot take: what raises, and what TensorFlow makes of NaN."""

import numpy as np
import tensorflow as tf
from _facts import error, show

nan = float("nan")
x = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
i = tf.constant([7, -7])
b = tf.constant([True, False])

error("gather", lambda: tf.gather(x, [0, 2]))
error("gather, negative", lambda: tf.gather(x, [-1]))
error("gather along an axis", lambda: tf.gather(x, [3], axis=1))
error("gather in batches", lambda: tf.gather(x, [[0], [5]], batch_dims=1))
error("gather_nd", lambda: tf.gather_nd(x, [[0, 3]]))
error("gather_nd of rows", lambda: tf.gather_nd(x, [[2]]))
error("embedding", lambda: tf.nn.embedding_lookup(x, [9]))
error("scatter_nd", lambda: tf.scatter_nd([[4]], [1.0], [3]))
error("tensor_scatter_nd_update", lambda: tf.tensor_scatter_nd_update(x, [[2]], [[0.0, 0.0, 0.0]]))
error("label", lambda: tf.nn.sparse_softmax_cross_entropy_with_logits([0, 3], x))
error("segment ids", lambda: tf.math.segment_sum([1, 2], [1, 0]))
error("permutation", lambda: tf.math.invert_permutation([0, 0]))

error("index", lambda: x[2])
error("negative index", lambda: x[-3])
error("index of columns", lambda: x[0, 3])
error("index after a slice", lambda: x[:, 7])
error("index after dots", lambda: x[..., 3])
error("too many indices", lambda: x[0, 0, 0])
error("index of a shape", lambda: tf.shape(x)[2])
show("slice beyond the end", x[1:9])
show("tensor as index", x[tf.constant(1)])
show("last", x[-1, -1])

error("floor division", lambda: i // 0)
error("remainder", lambda: i % tf.constant([0, 1]))
error("reversed", lambda: 5 // tf.constant([0, 1]))
error("floordiv", lambda: tf.math.floordiv(i, 0))
error("floormod", lambda: tf.math.floormod(i, [0, 1]))
show("true division", i / 0)
show("floats", tf.constant([1.0, -1.0]) // 0.0)

error("negative of bool", lambda: -b)
error("abs of bool", lambda: abs(b))
error("bool times number", lambda: b * 2)
error("number times bool", lambda: 2 * b)
error("bool plus bool", lambda: b + b)
error("bool less", lambda: b < b)
show("bools", [b & b, b ^ True, ~b, b == b])

show("equal, other lengths", tf.constant([1, 2]) == tf.constant([1, 2, 3]))
show("not equal, other lengths", tf.constant([1, 2]) != tf.constant([1, 2, 3]))
show("equal to a list", tf.constant([1, 2]) == [1, 2, 3])
show("equal, broadcast", x == x[:1])
show("equal to None", x == None)  # noqa: E711
show("not equal to None", x != None)  # noqa: E711
error("tf.equal", lambda: tf.equal(tf.constant([1, 2]), tf.constant([1, 2, 3])))
error("other types", lambda: tf.constant([1]) == tf.constant([1.0]))

for name, values in {
    "first": [nan, 1.0, 2.0],
    "middle": [3.0, nan, 2.0],
    "all": [nan, nan],
    "low": [-np.inf, nan],
}.items():
    tensor = tf.constant(values)
    show(f"argmax with NaN, {name}", [tf.argmax(tensor), tf.argmin(tensor)])
    show(
        f"argmax of doubles with NaN, {name}",
        [tf.argmax(tf.cast(tensor, tf.float64)), tf.argmin(tf.cast(tensor, tf.float64))],
    )
    show(
        f"max with NaN, {name}",
        [tf.reduce_max(tensor), tf.reduce_min(tensor), tf.maximum(tensor, 0.0), tf.minimum(0.0, tensor)],
    )
    show(f"clip with NaN, {name}", [tf.clip_by_value(tensor, 0.0, 2.5), tf.nn.relu(tensor), tf.sign(tensor)])

error("reshape", lambda: tf.reshape(x, [4]))
error("matmul", lambda: tf.matmul(x, x))
error("singular", lambda: tf.linalg.inv([[1.0, 1.0], [1.0, 1.0]]))
error("singular solve", lambda: tf.linalg.solve([[1.0, 1.0], [1.0, 1.0]], [[1.0], [1.0]]))
error("one_hot of floats", lambda: tf.one_hot([1.0], 2))
error("negative repeats", lambda: tf.repeat([1, 2], -1))
error("zero slices", lambda: tf.split(x, 2, axis=1))
error("range", lambda: tf.range(0, 3, 0))
error("linspace", lambda: tf.linspace(0.0, 1.0, 0))
error("top_k", lambda: tf.math.top_k([1, 2], 3))
error("unique of a matrix", lambda: tf.unique(x))
error("concat", lambda: tf.concat([x, tf.ones([2, 2])], 0))
error("operator, shapes", lambda: x + tf.ones([2]))
error("operator, matmul", lambda: x @ x)
error("ids of other length", lambda: tf.math.unsorted_segment_sum(x, [0], 2))
