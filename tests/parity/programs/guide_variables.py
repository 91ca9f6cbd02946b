"""The guide to variables: making, changing, naming and placing them."""

import tensorflow as tf
from _facts import error, show

table = tf.constant([[1.0, 2.0], [3.0, 4.0]])
v = tf.Variable(table)
show("of a tensor", v)
show("of booleans", tf.Variable([False, False, False, True]))
show("of complex numbers", tf.Variable([5 + 4j, 6 + 1j]))
print("shape:", v.shape)
print("dtype:", v.dtype)
show("as NumPy", v.numpy())
print("printed:", v)
show("as a tensor", tf.convert_to_tensor(v))
show("the largest", tf.math.argmax(v))
show("reshaped", tf.reshape(v, [1, 4]))
show("the variable keeps its shape", v.shape.as_list())

a = tf.Variable([2.0, 3.0])
a.assign([1, 2])
show("assigned integers", a)
error("another shape", lambda: a.assign([1.0, 2.0, 3.0]))
show("as before", a)

b = tf.Variable(a)
a.assign([5, 6])
show("a copy of its own", [a.numpy(), b.numpy()])
show("assign_add gives the new value", a.assign_add([2, 3]).numpy())
show("assign_sub gives the new value", a.assign_sub([7, 9]).numpy())
show("the result is as the variable", a.assign_add([1, 1]) + a)

mark = tf.Variable(table, name="Mark")
other = tf.Variable(table + 1, name="Mark")
show("equal names", [mark.name, other.name])
show("compared by value", mark == other)
show("compared with the tensor", mark == table)
error("no key of a dict", lambda: {mark: 1})
show("a reference is", {mark.ref(): "Mark"}[mark.ref()])

step_counter = tf.Variable(1, trainable=False)
show("trainable", [mark.trainable, step_counter.trainable])
with tf.GradientTape() as tape:
    product = mark * tf.cast(step_counter, tf.float32)
show("no gradient for the counter", tape.gradient(product, [mark, step_counter]))

with tf.device("CPU:0"):
    left = tf.Variable([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    right = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    show("on the processor", tf.matmul(left, right))
show("its device", left.device.rpartition("/")[2])

with tf.device("CPU:0"):
    here = tf.Variable([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    row = tf.Variable([[1.0, 2.0, 3.0]])
with tf.device("CPU:1"):
    elsewhere = here * row
show("computed on another device", elsewhere)
show("whose name is", elsewhere.device.rpartition("/")[2])
error("without a value", lambda: tf.Variable())
show("in arithmetic", [row + 1, 2 * row, row @ tf.transpose(row), -row, row[0, 1]])
