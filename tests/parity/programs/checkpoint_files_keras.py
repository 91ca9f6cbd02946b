"""Checkpoints of Keras models and optimizers in TensorFlow's files: names, and going on."""

import os
import tempfile

import numpy as np
import tensorflow as tf
from _facts import error, show

os.environ["TFDIST_CHECKPOINT_FORMAT"] = "tensorflow"  # Means nothing to TensorFlow.
folder = tempfile.mkdtemp()
layers, optimizers = tf.keras.layers, tf.keras.optimizers
x = np.linspace(-1, 1, 24, dtype="f4").reshape(8, 3)
y = x[:, :1] * 2


def make_sequential():
    return tf.keras.Sequential(
        [layers.Input((3,)), layers.Dense(4), layers.BatchNormalization(), layers.Dense(2), layers.Dense(1)]
    )


def make_functional():
    inputs = layers.Input((3,))
    one = layers.Dense(4, activation="tanh")(inputs)
    rows = layers.Reshape((2, 2))(one)
    rows = layers.LSTM(3, return_sequences=True)(rows)
    rows = layers.LayerNormalization()(layers.TimeDistributed(layers.Dense(2))(rows))
    both = layers.Add()([layers.Flatten()(rows), one])
    return tf.keras.Model(inputs, tf.keras.Sequential([layers.Dense(3), layers.Dense(1)])(both))


class Subclassed(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.pair = (layers.Dense(4), layers.Dense(4))
        self.out = layers.Dense(1)
        self.scale = self.add_weight(shape=(4,), initializer="ones", name="scaling")
        self.offset = tf.Variable([0.0])

    def call(self, inputs):
        return self.out(self.pair[1](self.pair[0](inputs)) * self.scale) + self.offset


def fill(model):
    random = np.random.RandomState(0)
    model.set_weights([random.normal(size=weight.shape).astype("f4") * 0.3 for weight in model.get_weights()])


def train(state, steps=2):
    losses = []
    for _ in range(steps):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(state.model(x, training=True) - y))
        variables = state.model.trainable_variables
        state.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        losses.append(loss)
    return losses


cases = {
    "sequential": (make_sequential, lambda: optimizers.Adam(0.01)),
    "functional": (make_functional, lambda: optimizers.SGD(0.1, momentum=0.9)),
    "subclassed": (Subclassed, lambda: optimizers.RMSprop(0.01, centered=True, momentum=0.5)),
    "schedule": (make_sequential, lambda: optimizers.AdamW(optimizers.schedules.ExponentialDecay(0.01, 2, 0.9))),
    "adagrad": (make_sequential, lambda: optimizers.Adagrad(0.1)),
}
for label, (make_model, make_optimizer) in cases.items():
    state = tf.train.Checkpoint(model=make_model(), optimizer=make_optimizer())
    state.model(x)
    fill(state.model)
    train(state)
    path = state.save(f"{folder}/{label}")
    show(f"{label}: variables", tf.train.list_variables(path))
    types = tf.train.load_checkpoint(path).get_variable_to_dtype_map()
    show(f"{label}: types", {name: dtype.name for name, dtype in types.items()})
    expected = train(state)
    # An optimizer that has taken no step has its variables made later.
    again = tf.train.Checkpoint(model=make_model(), optimizer=make_optimizer())
    again.model(x)
    status = again.restore(path)
    found = train(again)
    status.assert_consumed()
    show(f"{label}: goes on", [float(np.abs(one - two) < 1e-6) for one, two in zip(found, expected)])
    show(f"{label}: steps", [int(again.optimizer.iterations.numpy()), again.save_counter])

only = tf.train.Checkpoint(model=make_sequential())
status = only.restore(f"{folder}/sequential-1")
error("an optimizer is missing", status.assert_consumed)
show("the model is there", status.assert_existing_objects_matched() is not None)
status.expect_partial()
values = [weight for weight in only.model.get_weights()]
show("number of weights", len(values))
first = tf.train.load_variable(f"{folder}/sequential-1", "optimizer/_trainable_variables/0/.ATTRIBUTES/VARIABLE_VALUE")
show("the first one", bool((values[0] == first).all()))
other = tf.train.Checkpoint(model=tf.keras.Sequential([layers.Input((3,)), layers.Dense(5)]))
error("a layer of another size", lambda: other.restore(f"{folder}/sequential-1"))
