"""What tapes watch, when they may be used, and what they answer for sources that are not connected."""

import tensorflow as tf
from _facts import error, show

x, v, frozen = tf.constant(3.0), tf.Variable(2.0), tf.Variable(5.0, trainable=False)


def taped(fn, *sources, persistent=False, watch=(), **options):
    with tf.GradientTape(persistent=persistent, **options) as tape:
        for source in watch:
            tape.watch(source)
        y = fn()
    return tape.gradient(y, list(sources))


show("variables are watched, tensors and frozen ones not", taped(lambda: v * x * frozen, v, x, frozen))
show("watched by hand", taped(lambda: v * x * frozen, v, x, frozen, watch=(x, frozen)))
show("accessed variables not", taped(lambda: v * x, v, x, watch=(x,), watch_accessed_variables=False))
show("structures", taped(lambda: {"a": v * 2, "b": [v * v]}, v))
with tf.GradientTape() as tape:
    y = v * v
show("dictionary of sources", tape.gradient(y, {"v": v, "x": x}))
error("second use", lambda: tape.gradient(y, v))
with tf.GradientTape(persistent=True) as tape:
    tape.watch(x)
    y = x * v
    z = y * y
show("persistent", [tape.gradient(z, x), tape.gradient(z, y), tape.gradient(y, v), tape.gradient(z, v)])
show("zeros", tape.gradient(z, frozen, unconnected_gradients=tf.UnconnectedGradients.ZERO))
show("none", tape.gradient(z, frozen))
show("weighted", tape.gradient([y, z], x, output_gradients=[tf.constant(10.0), tf.constant(1.0)]))
show("of itself", tape.gradient(x, x))
show("of a variable", tape.gradient(v, v))
show("integers", tape.gradient(tf.cast(y, tf.int32), x))
error("no target", lambda: tape.gradient(None, x))
error("bad mode", lambda: tape.gradient(z, x, unconnected_gradients="nonsense"))
show("watched variables", [w.name for w in tape.watched_variables()])
with tf.GradientTape() as tape:
    tape.watch(x)
    with tape.stop_recording():
        a = x * x
    b = a * x
show("stop_recording", tape.gradient(b, x))
with tf.GradientTape() as tape:
    tape.watch(x)
    lost = x * x
    tape.reset()
    tape.watch(x)
    kept = x * 4.0
show("reset", tape.gradient([lost, kept], x))
with tf.GradientTape() as tape:
    tape.watch(x)
    c = x * x
    show("inside the block", tape.gradient(c, x))
error("entered twice", lambda: tape.__enter__().__enter__())
with tf.GradientTape() as tape:
    y = v * 3.0
    v.assign(7.0)
    z = v * v
show("assigned between", tape.gradient([y, z], v))
with tf.GradientTape() as tape:
    tape.watch(x)
    y = tf.stop_gradient(x) * x + tf.round(x)
show("stop_gradient", tape.gradient(y, x))
with tf.GradientTape() as tape:
    numbers = tf.constant([3, 4])
    tape.watch(numbers)
    y = numbers * 2
show("integer source", tape.gradient(y, numbers))
