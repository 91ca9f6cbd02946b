"""Names of other versions, and what stands beside the operations: logging, sections, specs, Jacobians by differences."""

import numpy as np
import tensorflow as tf
import tensorflow.compat.v2 as tf2
from _facts import error, show
from tensorflow.compat.v2 import nn

show("v2", [tf2.add(1, 2), nn.relu is tf.nn.relu, tf.compat.v2.Variable is tf.Variable, tf2.constant([1.5])])
C = tf.compat
show("bytes", [C.as_bytes("a"), C.as_bytes(b"a"), C.as_text(b"a"), C.as_str(b"a"), C.as_str_any(3), C.as_str_any(b"b")])
error("no text", lambda: C.as_bytes(3))
error("no encoding", lambda: C.as_text(b"a", encoding="none"))
show(
    "types", [isinstance(np.int8(1), C.integral_types), isinstance(1.0, C.integral_types), isinstance(1, C.real_types)]
)
show("dimension", [C.dimension_value(3), C.dimension_value(None), C.forward_compatible(2020, 1, 1)])
C.v1.enable_v2_behavior()
C.v1.enable_eager_execution()
C.v1.set_random_seed(3)
show("eager", C.v1.executing_eagerly())
C.v1.logging.set_verbosity(C.v1.logging.ERROR)
C.v1.logging.info("not shown %d", 1)
show("logging", [C.v1.logging.get_verbosity(), tf.get_logger().name, C.v1.logging.WARN, tf.get_logger().level])

section = tf.CriticalSection()
counter = tf.Variable(0)
show("section", [section.execute(lambda: counter.assign_add(2) + 0), counter + 0])
show("section in a function", tf.function(lambda: section.execute(lambda: counter.assign_add(1) + 0))())
error("section of no function", lambda: section.execute(3))
show("time", [tf.timestamp().dtype.name, bool(tf.timestamp() > 1e9), bool(tf.function(tf.timestamp)() > 1e9)])
show("constant", tf.guarantee_const([1, 2]))
show(
    "aggregation", [tf.AggregationMethod.DEFAULT == tf.AggregationMethod.ADD_N, tf.AggregationMethod.EXPERIMENTAL_TREE]
)
spec = tf.type_spec_from_value(tf.ones([2, 3]))
show("spec", [spec == tf.TensorSpec([2, 3]), tf.type_spec_from_value(tf.sparse.eye(2)) == tf.SparseTensorSpec([2, 2])])
show("spec of numbers", tf.type_spec_from_value([1, 2]) == tf.TensorSpec([2], tf.int32))
error("spec of an object", lambda: tf.type_spec_from_value(object()))
theory, numbers = tf.test.compute_gradient(lambda x, y: x * x * y, [tf.constant([1.0, 2.0]), tf.constant([3.0, 4.0])])
show("gradients", theory)
show("by differences", [bool(np.abs(a - b).max() < 1e-2) for a, b in zip(theory, numbers)])
error("gradient of no list", lambda: tf.test.compute_gradient(lambda x: x, tf.constant(1.0)))
error("beyond the end of a section", lambda: tf.CriticalSection(name="s").execute(lambda: 1 // 0))
show("placed in NumPy", tf.experimental.numpy.add(tf.constant([1]), tf.constant([0.5])))
