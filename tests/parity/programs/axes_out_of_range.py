"""Axes that a tensor does not have: errors, never another axis."""

import tensorflow as tf
from _facts import error, show

x = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
sparse = tf.sparse.from_dense([[1.0, 0.0], [0.0, 2.0]])
USES = {
    "gather": lambda axis: tf.gather(x, [0], axis=axis),
    "reverse_sequence": lambda axis: tf.reverse_sequence(x, [1, 2], seq_axis=axis, batch_axis=0),
    "reverse_sequence, batch": lambda axis: tf.reverse_sequence(x, [1, 2], seq_axis=1, batch_axis=axis),
    "boolean_mask": lambda axis: tf.boolean_mask(x, [True, False], axis=axis),
    "sparse.concat": lambda axis: tf.sparse.to_dense(tf.sparse.concat(axis, [sparse, sparse])),
    "sparse.reduce_sum": lambda axis: tf.sparse.reduce_sum(sparse, axis=axis),
    "split": lambda axis: tf.split(x, 1, axis=axis)[0],
    "one_hot": lambda axis: tf.one_hot([1, 0], 2, axis=axis),
    "argmax": lambda axis: tf.argmax(x, axis=axis),
    "cumsum": lambda axis: tf.cumsum(x, axis=axis),
    "unstack": lambda axis: tf.unstack(x, axis=axis)[0],
    "sort": lambda axis: tf.sort(x, axis=axis),
    "concat": lambda axis: tf.concat([x, x], axis=axis),
    "reduce_sum": lambda axis: tf.reduce_sum(x, axis=axis),
}
for name, use in USES.items():
    for axis in (2, 5, -3, -4):
        error(f"{name}, {axis}", lambda use=use, axis=axis: use(axis))
    if not name.startswith(("reverse_sequence", "one_hot")):
        show(f"{name}, -2", use(-2))
error("batch_dims over indices", lambda: tf.gather(x, [0, 1], axis=1, batch_dims=2))
show("batch_dims", tf.gather(x, [[0], [1]], axis=1, batch_dims=1))
variable = tf.Variable([1, 2])
show("a variable equals", variable == 1)
error("a variable equals a text", lambda: variable == "a")
error("a variable differs from a text", lambda: variable != "a")
error("a variable equals other types", lambda: variable == tf.constant([1.0, 2.0]))
show("a variable equals other shapes", variable == [1, 2, 3])
error("a tensor times a variable of another type", lambda: tf.constant([1, 2]) * tf.Variable(1.5))
error("a tensor equals a variable of another type", lambda: tf.constant([1, 2]) == tf.Variable(1.5))
show("a tensor equals a variable", tf.constant([1, 3]) == variable)
