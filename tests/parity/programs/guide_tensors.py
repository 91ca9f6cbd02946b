"""The guide to tensors: kinds, arithmetic, shapes, indexing, reshaping, types, broadcasting, texts."""

import numpy as np
import tensorflow as tf
from _facts import error, show

scalar = tf.constant(4)
vector = tf.constant([2.0, 3.0, 4.0])
matrix = tf.constant([[1, 2], [3, 4], [5, 6]], dtype=tf.float16)
cube = tf.constant([[[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]], [[10, 11, 12, 13, 14], [15, 16, 17, 18, 19]]])
for tensor in (scalar, vector, matrix, cube):
    print(tensor)
    print(repr(tensor))
show("to NumPy", [np.array(matrix), matrix.numpy()])

a, b = tf.constant([[1, 2], [3, 4]]), tf.constant([[1, 1], [1, 1]])
print(tf.add(a, b), "\n", tf.multiply(a, b), "\n", tf.matmul(a, b))
print(a + b, "\n", a * b, "\n", a @ b)
c = tf.constant([[4.0, 5.0], [10.0, 1.0]])
show("largest", [tf.reduce_max(c), tf.math.argmax(c), tf.nn.softmax(c)])
show("what converts", [tf.convert_to_tensor([1, 2, 3]), tf.reduce_max([1, 2, 3]), tf.reduce_max(np.array([1, 2, 3]))])

zeros = tf.zeros([3, 2, 4, 5])
print("type of every element:", zeros.dtype)
print("number of axes:", zeros.ndim)
print("shape:", zeros.shape)
print("along the first and last axis:", zeros.shape[0], zeros.shape[-1])
print("elements:", tf.size(zeros).numpy())
show("as tensors", [tf.rank(zeros), tf.shape(zeros)])

fibonacci = tf.constant([0, 1, 1, 2, 3, 5, 8, 13, 21, 34])
print(fibonacci.numpy())
show("entries", [fibonacci[0].numpy(), fibonacci[1].numpy(), fibonacci[-1].numpy()])
parts = [fibonacci[:], fibonacci[:4], fibonacci[4:], fibonacci[2:7], fibonacci[::2], fibonacci[::-1]]
show("parts", [part.numpy() for part in parts])
show("of a matrix", [matrix[1, 1], matrix[1, :], matrix[:, 1], matrix[-1, :], matrix[0, -1], matrix[1:, :]])
show("last feature", cube[:, :, 4])
show("new axes", [list(cube[..., tf.newaxis].shape), list(cube[tf.newaxis, 0].shape)])

x = tf.constant([[1], [2], [3]])
print(x.shape)
print(x.shape.as_list())
reshaped = tf.reshape(x, [1, 3])
print(reshaped.shape)
show("flat", tf.reshape(cube, [-1]))
show(
    "reshaped",
    [tf.reshape(cube, [3 * 2, 5]) if cube.shape[0] == 3 else tf.reshape(cube, [4, 5]), tf.reshape(cube, [2, -1])],
)
show("axes swapped by mistake", tf.reshape(cube, [5, 4]))
error("of no use", lambda: tf.reshape(cube, [7, -1]))
show("transposed", tf.transpose(cube, [2, 0, 1]))


@tf.function(input_signature=[tf.TensorSpec([None, None, 3])])
def unknown(image):
    return tf.constant(image.shape.rank), tf.shape(image)


show("shapes that are not known yet", unknown(tf.zeros([2, 5, 3])))

f64 = tf.constant([2.2, 3.3, 4.4], dtype=tf.float64)
f16 = tf.cast(f64, dtype=tf.float16)
print(tf.cast(f16, dtype=tf.uint8))
show("types", [f64.dtype.name, f16.dtype.name, tf.constant(1).dtype.name, tf.constant(1.5).dtype.name])
show("of NumPy", [tf.constant(np.arange(2)).dtype.name, tf.constant(np.ones(2)).dtype.name])

x, y, z = tf.constant([1, 2, 3]), tf.constant(2), tf.constant([2, 2, 2])
show("broadcast", [tf.multiply(x, 2), x * y, x * z])
x, y = tf.reshape(x, [3, 1]), tf.range(1, 5)
print(x, "\n", y, "\n", tf.multiply(x, y))
stretched = tf.constant([[1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]])
show("by hand", stretched * tf.constant([[1, 2, 3, 4]] * 3))
print(tf.broadcast_to(tf.constant([1, 2, 3]), [3, 3]))
error("does not broadcast", lambda: tf.add(tf.ones([3]), tf.ones([4])))

error("rows of different length", lambda: tf.constant([[0, 1, 2, 3], [4, 5], [6, 7, 8], [9]]))

print(tf.constant("Gray wolf"))
animals = tf.constant(["Gray wolf", "Quick brown fox", "Lazy dog"])
print(animals)
show("texts", [animals.dtype.name, list(animals.shape), animals[0]])
print(tf.constant("🥳👍"))
show("not a number", [tf.constant("Duck").numpy(), tf.constant(["a", "b"]).numpy().tolist()])
