"""Layers and models whose `call` is a `tf.function`: arguments, masks, nesting, training."""

import inspect

import numpy as np
import tensorflow as tf
from _facts import show


class Scaled(tf.keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.supports_masking = True

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")

    @tf.function
    def call(self, inputs, mask=None):
        inputs = inputs * self.scale
        return inputs if mask is None else inputs * tf.cast(mask, tf.float32)[..., tf.newaxis]


class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = tf.keras.layers.Dense(2, kernel_initializer="ones")
        self.scaled = Scaled()
        self.norm = tf.keras.layers.BatchNormalization(momentum=0.5)
        for layer in (self.dense, self.scaled, self.norm):  # Variables made in `call` would get no gradients there.
            layer.build((None, 2))

    @tf.function
    def call(self, inputs, training=False, factor=1.0):
        outputs = self.norm(self.scaled(self.dense(inputs)), training=training)
        if training:
            outputs = outputs + factor
        return outputs


class Signed(tf.keras.layers.Layer):
    @tf.function(input_signature=[tf.TensorSpec([None, 2])])
    def call(self, inputs):
        return inputs * 2.0 if tf.reduce_sum(inputs) > 0.0 else inputs


x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
show("layer", Scaled()(x))
embedded = tf.keras.layers.Embedding(3, 2, mask_zero=True, embeddings_initializer="ones")(tf.constant([[1, 0, 2]]))
show("mask", Scaled()(embedded))
show("signature", Signed()(x))
show("signature, the other branch", Signed()(-x))

net = Net()
show("parameters", list(inspect.signature(net.call).parameters))
show("model", net(x))
show("argument", net(x, training=False, factor=2.0))
show("training", net(x, training=True))
show("training with an argument", net(x, training=True, factor=3.0))
show("variables", [len(net.variables), len(net.trainable_variables)])

with tf.GradientTape() as tape:
    loss = tf.reduce_sum(net(x) ** 2)
show("gradients", [tf.reduce_sum(gradient) for gradient in tape.gradient(loss, net.trainable_variables)])

net.compile("sgd", "mse")
history = net.fit(np.ones((4, 2), "float32"), np.zeros((4, 2), "float32"), batch_size=2, epochs=2, verbose=0)
show("fit", history.history["loss"])
show("evaluate", net.evaluate(np.ones((4, 2), "float32"), np.zeros((4, 2), "float32"), verbose=0))
show("predict", net.predict(np.ones((2, 2), "float32"), verbose=0))

inputs = tf.keras.Input((2,))
functional = tf.keras.Model(inputs, Scaled()(net(inputs)))
show("functional", functional.output_shape)
show("functional called", functional(x))
show("sequence", tf.keras.Sequential([Scaled(), Signed()])(x))
