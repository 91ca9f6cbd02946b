"""Ragged tensors in compiled functions, gradients, `tf.map_fn`, `tf.nest` and signatures."""

import tensorflow as tf
from _facts import error, show

rows = tf.ragged.constant([[1.0, 2.0], [], [3.0]])
whole = tf.ragged.constant([[1, 2], [], [3]])
deep = tf.ragged.constant([[[1, 2], [3]], [], [[4]]])


@tf.function
def double(x):
    return x * 2


@tf.function
def sums(x, axis=1):
    return tf.reduce_sum(x, axis=axis)


@tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.int32)])
def longest(x):
    return tf.reduce_max(x.row_lengths())


show("in functions", [double(rows), double(deep), sums(rows), sums(deep, 2), longest(whole)])
show("of a tensor", tf.function(lambda x: tf.RaggedTensor.from_row_splits(x, [0, 1, 3]))(tf.constant([1, 2, 3])))
show("without padding", tf.function(lambda x: tf.RaggedTensor.from_tensor(x, padding=0))(tf.constant([[1, 0], [1, 2]])))
error("not ragged", lambda: longest([[1]]))
error("of another type", lambda: longest(rows))

with tf.GradientTape() as tape:
    tape.watch(rows.flat_values)
    loss = tf.reduce_sum(tf.square(rows) * tf.constant([[1.0], [10.0], [100.0]]))
show("gradient", tape.gradient(loss, rows.flat_values))
with tf.GradientTape() as tape:
    tape.watch(rows.flat_values)
    loss = tf.reduce_sum(tf.square(rows.to_tensor()[:, ::-1])) + tf.reduce_max(tf.reduce_sum(rows, 1))
show("gradient through tensors", tape.gradient(loss, rows.flat_values))
table = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
with tf.GradientTape() as tape:
    means = tf.reduce_mean(tf.nn.embedding_lookup(table, whole), axis=1)
    loss = tf.reduce_sum(means[0] * means[2])
show("gradient of embeddings", tf.convert_to_tensor(tape.gradient(loss, table)))
with tf.GradientTape() as tape:
    tape.watch(rows.flat_values)
    loss = tf.reduce_sum(tf.concat([rows, rows * 2.0], 1)[2] ** 2) + rows[0][1] + tf.reduce_sum(rows[:, :1])
show("gradient of parts", tape.gradient(loss, rows.flat_values))

ragged = tf.RaggedTensorSpec([None], tf.int32)
show("mapped to scalars", tf.map_fn(tf.reduce_sum, whole, fn_output_signature=tf.int32))
show("mapped to rows", tf.map_fn(lambda x: x + 1, whole, fn_output_signature=ragged))
show("tensors mapped to rows", tf.map_fn(lambda n: tf.range(n), tf.constant([1, 3, 0]), fn_output_signature=ragged))
nested = tf.RaggedTensorSpec([None, None], tf.int32, 1)
show("rows mapped to deep ones", tf.map_fn(lambda x: tf.ragged.range(x), whole, fn_output_signature=nested))
error("mapped to no rows", lambda: tf.map_fn(tf.reduce_sum, whole))

show("nest", [tf.nest.flatten({"a": whole, "b": [deep]}), tf.nest.flatten(deep, expand_composites=True)])
flat = tf.nest.flatten([whole, deep], expand_composites=True)
show("packed", tf.nest.pack_sequence_as([whole, deep], flat, expand_composites=True))
show("structures", tf.nest.map_structure(lambda x: x * 2, {"a": whole}))
show("parts of structures", tf.nest.map_structure(tf.identity, [deep], expand_composites=True))
show("is nested", tf.nest.is_nested(whole))
tf.nest.assert_same_structure([whole], [deep])
tf.debugging.assert_equal(whole, whole)
error("not equal", lambda: tf.debugging.assert_equal(whole, whole + 1))

spec = tf.RaggedTensorSpec([None, None], tf.int32)
print(spec, spec.shape, spec.dtype, spec.ragged_rank, spec.row_splits_dtype)
print(tf.RaggedTensorSpec([2, None, 3], tf.string, 1, tf.int32), tf.RaggedTensorSpec(None, tf.int32, ragged_rank=2))
show("fits", [spec.is_compatible_with(whole), spec.is_compatible_with(rows), spec.is_compatible_with(deep)])
show(
    "equal specs",
    [spec == tf.RaggedTensorSpec([None, None], tf.int32), spec == tf.RaggedTensorSpec([3, None], tf.int32)],
)
show("kinds", [isinstance(tf.type_spec_from_value(whole), tf.TypeSpec), isinstance(tf.TensorSpec([1]), tf.TypeSpec)])
error("of no rank", lambda: tf.RaggedTensorSpec(None, tf.int32))
