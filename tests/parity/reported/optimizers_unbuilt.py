import numpy as np
import tensorflow as tf
from _show import show

for (
    n
) in "SGD RMSprop Adam AdamW Adadelta Adagrad Adamax Nadam Ftrl Lion Adafactor Lamb Muon LossScaleOptimizer".split():

    def f(n=n):
        o = getattr(tf.keras.optimizers, n)
        o = o(tf.keras.optimizers.SGD()) if n == "LossScaleOptimizer" else o(0.01)
        v = tf.Variable(np.ones((2, 2), np.float32)) if n != "x" else None
        m = tf.keras.layers.Dense(2)
        m.build((None, 2))

        @tf.function
        def step():
            with tf.GradientTape() as t:
                loss = tf.reduce_sum(m(tf.ones((1, 2))) ** 2)
            o.apply_gradients(zip(t.gradient(loss, m.trainable_variables), m.trainable_variables))
            return loss

        step()
        return "ok" if float(step()) >= 0 else "?"

    show("O " + n, f)
show("not_equal string", lambda: tf.not_equal("a", "b"))
show(
    "not_equal string tensors in map",
    lambda: [
        bool(x)
        for x in tf.data.Dataset.from_tensor_slices(["a", "b"])
        .filter(lambda x: tf.not_equal(x, "a"))
        .map(lambda x: True)
    ],
)
show(
    "equal string in filter",
    lambda: len(list(tf.data.Dataset.from_tensor_slices(["a", "b"]).filter(lambda x: x == "a"))),
)
