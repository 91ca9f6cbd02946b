"""Arguments at the edges: large integers, ranges as shapes, complex numbers, texts, and what is no number."""

import numpy as np
import tensorflow as tf
from _facts import error, show

show("uint64", [tf.constant(2**64 - 1, tf.uint64), tf.constant([2**64 - 1, 0], tf.uint64)])
error("uint64 without a type", lambda: tf.constant(2**64 - 1))
show(
    "ranges as shapes",
    [tf.ones(range(1, 3)), tf.zeros(range(2)), tf.fill(range(1, 3), 1), tf.reshape([1, 2], range(1, 3))],
)
show("numbers", [int(tf.constant(1 + 2j)), float(tf.constant(1 + 2j)), int(tf.constant(2.7))])
error("axis that is a list", lambda: tf.cumsum([1, 2, 3], axis=[0]))
tf.random.set_seed(None)
show("no seed", bool(tf.reduce_all(tf.random.uniform([8]) != tf.random.uniform([8]))))


@tf.py_function(Tout=tf.float32)
def by_python(x, y):
    return x * 2 + y


@tf.numpy_function(Tout=tf.int64)
def by_numpy(x):
    return np.argsort(x)


show("decorators", [by_python(1.0, 2.0), by_numpy([3.0, 1.0])])
slices = tf.IndexedSlices(tf.ones((1, 2)), tf.constant([0]), tf.constant([3, 2]))
show("parts of slices", [len(tf.nest.flatten(slices)), len(tf.nest.flatten(slices, expand_composites=True))])
show(
    "slices of a shape in a function",
    tf.function(
        lambda: tf.convert_to_tensor(tf.IndexedSlices(tf.ones((1, 2)), tf.constant([1]), tf.identity([3, 2])))
    )(),
)
show(
    "paddings in capitals",
    [tf.keras.ops.pad(np.arange(3, dtype="int32"), 1, mode=mode) for mode in ("REFLECT", "SYMMETRIC", "constant")],
)

texts = tf.TensorArray(tf.string, 2, clear_after_read=False).write(0, "a").write(1, "bc")
show("texts in an array", [texts.stack(), texts.read(1), texts.gather([1, 0]), texts.write(0, "d").stack()])
growing = tf.TensorArray(tf.string, 0, dynamic_size=True).write(1, "x")
show("growing", growing.stack())
show("unstacked", tf.TensorArray(tf.string, 2, clear_after_read=False).unstack([["a"], ["b"]]).concat())
show("map_fn to texts", tf.map_fn(lambda x: tf.constant("t"), tf.constant([0, 1]), fn_output_signature=tf.string))
show("map_fn of texts", tf.map_fn(lambda t: t, tf.constant(["a", "b"])))
error("map_fn of nothing", lambda: tf.map_fn(lambda x: x, []))
show("where of texts", tf.where([True, False], tf.constant(["a", "b"]), "c"))
error("where of a text", lambda: tf.where(tf.constant(["a", ""])))
with tf.GradientTape() as tape:
    t = tf.constant("a")
    tape.watch(t)
    u = tf.identity(t)
show("gradient of texts", tape.gradient(u, t))


def batch_jacobian(**options):
    x = tf.constant([[1.0, 2.0]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    return tape.batch_jacobian(y, x, **options)


error("parallel iterations without a persistent tape", lambda: batch_jacobian(parallel_iterations=1))


def negative_if_odd(x):
    if x % 2 == 1:
        return -x
    return x


show("AutoGraph in map_fn", tf.function(lambda x: tf.map_fn(negative_if_odd, x))(tf.constant([1, 2, 3])))
show("roots", tf.linalg.sqrtm(tf.constant([[4.0, 1.0], [1.0, 3.0]], tf.float64)))

scalar, matrix = tf.constant(1.0), tf.ones((2, 3))
for name, call in {
    "matmul": lambda: tf.matmul(matrix, tf.ones((4, 5))),
    "matvec": lambda: tf.linalg.matvec(matrix, tf.ones(4)),
    "tensordot": lambda: tf.tensordot(matrix, tf.ones((4, 5)), 1),
    "len": lambda: len(scalar),
    "iter": lambda: list(scalar),
    "hash": lambda: hash(matrix),
    "set": lambda: {scalar},
    "argmax": lambda: tf.argmax(matrix, 5),
    "argmin": lambda: tf.argmin(scalar),
}.items():
    error(name, call)
    try:
        call()
    except Exception as raised:
        foreign = [
            word for word in ("jnp", "jax", "dot_general", "ArrayImpl", "Tracer", "tuple index") if word in str(raised)
        ]
        show("words of the engine", foreign)
