"""Keras models as SavedModels: `export`, serving calls with several batch sizes, training what is loaded."""

import os
import tempfile

import numpy as np
import tensorflow as tf
from _facts import error, show
from tensorflow import keras

folder = os.path.join(tempfile.mkdtemp(), "model")


def fill(model):
    for number, weight in enumerate(model.weights):
        size = int(np.prod(weight.shape))
        weight.assign(np.linspace(0.1, 0.5 + 0.1 * number, size, dtype=np.float32).reshape(weight.shape))


model = keras.Sequential(
    [
        keras.layers.Input([4, 4, 3], name="image"),
        keras.layers.Conv2D(2, 3, padding="same", activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(3, activation="softmax"),
    ]
)
fill(model)
show("returned", model.export(folder, verbose=False))
loaded = tf.saved_model.load(folder)
show("attributes", [name for name in ("serve", "variables", "trainable_variables", "_layers") if hasattr(loaded, name)])
show("counts", [len(loaded.variables), len(loaded.trainable_variables), len(loaded.non_trainable_variables)])
show("signatures", sorted(loaded.signatures))
show("takes", str(loaded.signatures["serve"].structured_input_signature))
show("gives", str(loaded.signatures["serve"].structured_outputs))
for rows in (1, 2, 7):
    x = np.linspace(-1.0, 1.0, rows * 48, dtype=np.float32).reshape(rows, 4, 4, 3)
    y = loaded.serve(x)
    show("serve", y)
    show("as the model", bool(np.allclose(y, model(x), atol=1e-6)))
    show("signature", loaded.signatures["serving_default"](image=tf.constant(x))["output_0"])

with tf.GradientTape() as tape:
    loss = -tf.reduce_mean(tf.math.log(loaded.serve(x)[:, 0]))
gradients = tape.gradient(loss, loaded.trainable_variables)
show("gradients", [(gradient.shape.as_list(), tf.reduce_sum(tf.abs(gradient))) for gradient in gradients])
for variable, gradient in zip(loaded.trainable_variables, gradients, strict=True):
    variable.assign_sub(0.1 * gradient)
show("trained", loaded.serve(x)[:2])

a, b = keras.Input([2], name="a"), keras.Input([3], name="b")
by_name = keras.Model({"a": a, "b": b}, {"one": keras.layers.Dense(1)(a), "two": keras.layers.Dense(2)(b)})
fill(by_name)
by_name.export(folder, verbose=False)
loaded = tf.saved_model.load(folder)
served = loaded.signatures["serve"]
show("inputs", sorted(served.structured_input_signature[1]))
show("outputs", sorted(served(a=tf.ones([2, 2]), b=tf.ones([2, 3])).items()))
both = keras.Model([a, b], keras.layers.Concatenate()([a, b]))
both.export(folder, verbose=False)
loaded = tf.saved_model.load(folder)
show("lists", loaded.serve([tf.ones([2, 2]), tf.zeros([2, 3])]))


class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(2)

    def call(self, x, training=False):
        return self.dense(x)


own = Own()
error("not built", lambda: own.export(folder, verbose=False))
own(tf.ones([1, 2]))
fill(own)
own.export(folder, verbose=False)
loaded = tf.saved_model.load(folder)
show("own", loaded.serve(tf.ones([5, 2])))

archive = keras.export.ExportArchive()
archive.track(own)
archive.add_endpoint(
    "double", lambda x: own(x) * 2.0, input_signature=[keras.InputSpec(shape=(None, 2), dtype="float32")]
)
archive.add_endpoint("plain", own.call, input_signature=[tf.TensorSpec([None, 2], tf.float32, name="rows")])
archive.add_variable_collection("kept", own.weights[:1])
error("taken", lambda: archive.add_endpoint("double", own.call))
archive.write_out(folder, verbose=False)
loaded = tf.saved_model.load(folder)
show(
    "archive",
    [sorted(loaded.signatures), len(loaded.kept), loaded.double(tf.ones([1, 2])), loaded.plain(tf.ones([3, 2]))],
)
error("no endpoints", lambda: keras.export.ExportArchive().write_out(folder))

tf.saved_model.save(model, folder)
loaded = tf.saved_model.load(folder)
served = loaded.signatures["serving_default"]
show("model itself", [sorted(served.structured_input_signature[1]), served(inputs=tf.constant(x[:2]))["output_0"]])

layer = keras.layers.TFSMLayer(folder, call_endpoint="serving_default")
show("layer", layer(x[:2])["output_0"])
show("its weights", [len(layer.trainable_weights), len(layer.non_trainable_weights)])
error("no endpoint", lambda: keras.layers.TFSMLayer(folder))
