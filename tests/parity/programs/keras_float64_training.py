"""Training in 64 bits, with `set_floatx("float64")`: gradients of gradients, optimizers, metrics, `fit`."""

import numpy as np
import tensorflow as tf
from _facts import show

tf.keras.backend.set_floatx("float64")
L = tf.keras.layers
rng = np.random.RandomState(0)
rows = rng.randn(2, 4, 3)


def is_exact(array):
    """Whether an array has more digits than those of 32 bits."""
    return bool((array != array.astype("float32")).any())


def make_model():
    model = tf.keras.Sequential([L.Input((3,)), L.Dense(4, activation="tanh"), L.Dense(1)])
    model.set_weights([np.linspace(-0.5, 0.7, w.size).reshape(w.shape) for w in model.get_weights()])
    return model


critic, x = make_model(), tf.constant(rng.randn(6, 3))


@tf.function
def penalty_gradients():
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            inner.watch(x)
            scores = critic(x, training=True)
        (by_x,) = inner.gradient(scores, [x])
        norm = tf.sqrt(tf.reduce_sum(tf.square(by_x), axis=1) + 1e-12)
        loss = tf.reduce_mean((norm - 1.0) ** 2)
    return loss, outer.gradient(loss, critic.trainable_variables[:3])


show("gradient penalty", penalty_gradients())
for optimizer in ("sgd", "adam"):
    model = make_model()
    model.compile(optimizer, "mse", metrics=["mae"])
    history = model.fit(rows[0], rows[0, :, :1] * 2.0, batch_size=2, epochs=2, shuffle=False, verbose=0).history
    show(f"fit with {optimizer}", history)
    show("weights", [model.get_weights()[0], is_exact(model.get_weights()[0])])
model = tf.keras.Sequential([L.Input((3,)), L.Lambda(lambda t: t - 1.0)])
show("data in full", model.predict(np.full((1, 3), 1 + 1e-12), verbose=0))
strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
with strategy.scope():
    model = make_model()
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
data = tf.data.Dataset.from_tensor_slices((rows[0], rows[0, :, :1])).batch(4)
show("fit under a strategy", model.fit(data, epochs=2, verbose=0).history)
show("weight", model.get_weights()[-1])
