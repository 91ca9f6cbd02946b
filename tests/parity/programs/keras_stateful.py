"""Stateful recurrent layers: their states go on from batch to batch in fit, evaluate and predict, until they are reset."""

import numpy as np
import tensorflow as tf
from _facts import show

keras = tf.keras
layers = keras.layers
x = np.random.RandomState(0).randn(8, 3, 3).astype("f4")
y = x[:, 0, :2]
cells = {"kernel_initializer": "ones", "recurrent_initializer": "identity"}


def made(layer, **kwargs):
    model = keras.Sequential([layers.Input(batch_shape=(4, 3, 3)), layer])
    model.compile(keras.optimizers.SGD(0.1), "mse", **kwargs)
    return model


def states(layer):
    return [np.asarray(state).round(4) for state in tf.nest.flatten(layer.states)]


def simple(**kwargs):
    return made(layers.SimpleRNN(2, stateful=True, **cells), **kwargs)


fits = {"batch_size": 4, "shuffle": False, "verbose": 0}
for name, kwargs in {
    "fit": {},
    "eagerly": {"run_eagerly": True},
    "two steps at once": {"steps_per_execution": 2},
}.items():
    model = simple(**kwargs)
    show(f"{name}, loss", model.fit(x, y, epochs=2, **fits).history["loss"])
    show(f"{name}, states", states(model.layers[0]))
show("evaluate goes on", model.evaluate(x, y, batch_size=4, verbose=0))
show("its states", states(model.layers[0]))
model.layers[0].reset_states()
show("reset", states(model.layers[0]))
show("predict", model.predict(x, batch_size=4, verbose=0))
show("its states", states(model.layers[0]))
show("train_on_batch", [model.train_on_batch(x[:4], y[:4]), model.train_on_batch(x[4:], y[4:])])
model(x[:4])
show("a call", states(model.layers[0]))
tf.function(model)(tf.constant(x[:4]))
show("a function", states(model.layers[0]))

for kind in layers.LSTM, layers.GRU:
    model = made(kind(2, stateful=True, **cells))
    show(f"{kind.__name__}, loss", model.fit(x, y, epochs=2, **fits).history["loss"])
    show(f"{kind.__name__}, states", states(model.layers[0]))
stacked = layers.RNN([layers.SimpleRNNCell(2, **cells), layers.SimpleRNNCell(2, **cells)], stateful=True)
model = made(stacked)
model.fit(x, y, **fits)
show("stacked", states(stacked))


class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.rnn = layers.SimpleRNN(2, stateful=True, **cells)

    def call(self, x):
        return self.rnn(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables))
        return {"loss": loss}


model = Own()
model(x[:4])
model.rnn.reset_states()
model.compile(keras.optimizers.SGD(0.1))
model.fit(x, y, **fits)
show("a step of its own", states(model.rnn))
