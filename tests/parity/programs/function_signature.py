"""`input_signature` and concrete functions."""

import tensorflow as tf
from _facts import error, show

traces = []


@tf.function(input_signature=[tf.TensorSpec([None], tf.float32), tf.TensorSpec([], tf.int32)])
def scaled(x, k):
    traces.append(1)
    return x * tf.cast(k, tf.float32)


show("lists become tensors", scaled([1.0, 2.0], 3))
show("other length", scaled(tf.constant([1.0, 2.0, 3.0]), tf.constant(2)))
error("other type", lambda: scaled(tf.constant([1, 2]), 3))
error("other rank", lambda: scaled(tf.constant([[1.0]]), 3))
error("too few", lambda: scaled(tf.constant([1.0])))
error("too many", lambda: scaled(tf.constant([1.0]), 1, 2))
error("not a tensor", lambda: scaled("text", 1))
show("signature", [str(spec) for spec in scaled.input_signature])
error(
    "signature longer than arguments",
    lambda: tf.function(lambda x: x, input_signature=[tf.TensorSpec([])] * 2)(1.0, 2.0),
)


@tf.function(input_signature=[{"a": tf.TensorSpec([], tf.float32), "b": tf.TensorSpec([], tf.float32)}])
def add(parts):
    return parts["a"] + parts["b"]


show("structure", add({"a": 1.0, "b": tf.constant(2.0)}))
error("other keys", lambda: add({"a": 1.0}))


@tf.function
def power(x, exponent=2):
    return x**exponent


concrete = power.get_concrete_function(tf.TensorSpec([2], tf.float32))
show("concrete", concrete(tf.constant([1.0, 3.0])))
show("concrete by name", concrete(x=tf.constant([1.0, 4.0])))
show("from a value", power.get_concrete_function(tf.constant(3.0), 3)(tf.constant(2.0)))
show("outputs", [str(concrete.output_shapes), concrete.output_dtypes.name])
show("inputs", [str(spec.shape) for spec in concrete.inputs])
error("concrete of other type", lambda: concrete(tf.constant([1, 3])))
args, kwargs = concrete.structured_input_signature
show("structured signature", (str(args[0].shape), args[0].dtype.name, sorted(kwargs)))
show("structured outputs", (str(concrete.structured_outputs.shape), concrete.structured_outputs.dtype.name))
show("same for the same", power.get_concrete_function(tf.TensorSpec([2], tf.float32)) is concrete)


@tf.function(reduce_retracing=True)
def relaxed(x):
    return tf.reduce_sum(x)


show("relaxed", [relaxed(tf.ones([n])) for n in (1, 2, 3, 4)])
show("spec", [str(tf.TensorSpec([None, 2], tf.float32)), tf.TensorSpec([2]).is_compatible_with(tf.ones([2]))])
