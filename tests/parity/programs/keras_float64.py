"""Keras layers and their gradients in 64 bits, with `set_floatx("float64")`."""

import numpy as np
import tensorflow as tf
from _facts import show

tf.keras.backend.set_floatx("float64")
L = tf.keras.layers
rng = np.random.RandomState(0)
rows, images = rng.randn(2, 4, 3), rng.randn(2, 4, 4, 3)


def set_weights(layer):
    layer.set_weights([np.abs(rng.randn(*w.shape)) * 0.3 for w in layer.get_weights()])


def is_exact(array):
    """Whether an array has more digits than those of 32 bits."""
    return bool((array != array.astype("float32")).any())


for name, layer, x in (
    ("Conv1D", L.Conv1D(2, 2), rows),
    ("Conv2D", L.Conv2D(2, 2), images),
    ("Conv2DTranspose", L.Conv2DTranspose(2, 2), images),
    ("GRU", L.GRU(2), rows),
    ("LSTM", L.LSTM(2), rows),
    ("MaxPooling2D", L.MaxPooling2D(), images),
    ("GlobalAveragePooling2D", L.GlobalAveragePooling2D(), images),
    ("Embedding", L.Embedding(5, 2), np.array([[1, 2]])),
    ("BatchNormalization", L.BatchNormalization(), images),
    ("LayerNormalization", L.LayerNormalization(), rows),
    ("GroupNormalization", L.GroupNormalization(3), rows),
    ("Softmax", L.Softmax(), rows),
    ("gelu", L.Activation("gelu"), rows),
):
    layer.build(x.shape)
    set_weights(layer)
    with tf.GradientTape() as tape:
        y = layer(x, training=True) if name == "BatchNormalization" else layer(x)
        loss = tf.reduce_sum(y * y)
    gradients = tape.gradient(loss, layer.trainable_variables)
    show(name, [y.dtype.name, is_exact(y.numpy()), loss, [tf.reduce_sum(tf.convert_to_tensor(g)) for g in gradients]])

normalized = L.LayerNormalization()(rows).numpy()
reference = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-3)
show("LayerNormalization to 14 digits", bool(np.abs(normalized - reference).max() < 1e-14))
y = L.Dropout(0.5)(rows, training=True)
show("Dropout", [y.dtype.name, is_exact(y.numpy())])
show("keras.ops", [tf.keras.ops.mean(rows).dtype.name, tf.keras.ops.ones(2).dtype.name])
