"""A model of two networks, each with its optimizer, trained by a `train_step` of its own and without `call`."""

import numpy as np
import tensorflow as tf
from _facts import show

keras, layers = tf.keras, tf.keras.layers
x = np.random.default_rng(0).normal(size=(40, 8)).astype("f4")


class Adversaries(keras.Model):
    def __init__(self, judge, forger):
        super().__init__()
        self.judge, self.forger = judge, forger
        self.judged, self.forged = keras.metrics.Mean(name="judged"), keras.metrics.Mean(name="forged")

    def compile(self, judge_optimizer, forger_optimizer, loss):
        super().compile()
        self.judge_optimizer, self.forger_optimizer, self.loss_fn = judge_optimizer, forger_optimizer, loss

    @property
    def metrics(self):
        return [self.judged, self.forged]

    def train_step(self, real):
        rows = tf.shape(real)[0]
        seed = real[:, :4] * 0.5
        both = tf.concat([self.forger(seed), real], axis=0)
        labels = tf.concat([tf.ones((rows, 1)), tf.zeros((rows, 1))], axis=0)
        with tf.GradientTape() as tape:
            loss = self.loss_fn(labels, self.judge(both))
        gradients = tape.gradient(loss, self.judge.trainable_weights)
        self.judge_optimizer.apply_gradients(zip(gradients, self.judge.trainable_weights))
        with tf.GradientTape() as tape:
            forged = self.loss_fn(tf.zeros((rows, 1)), self.judge(self.forger(seed)))
        gradients = tape.gradient(forged, self.forger.trainable_weights)
        self.forger_optimizer.apply_gradients(zip(gradients, self.forger.trainable_weights))
        self.judged.update_state(loss)
        self.forged.update_state(forged)
        return {"judged": self.judged.result(), "forged": self.forged.result()}


def make(judge_optimizer, forger_optimizer):
    kernel = keras.initializers.Constant(np.linspace(-1, 1, 64).reshape(8, 8))
    judge = keras.Sequential(
        [
            keras.Input((8,)),
            layers.Dense(8, "relu", kernel_initializer=kernel),
            layers.Dense(1, kernel_initializer="ones"),
        ]
    )
    forger = keras.Sequential([keras.Input((4,)), layers.Dense(8, kernel_initializer="ones")])
    model = Adversaries(judge, forger)
    model.compile(judge_optimizer, forger_optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
    return model


def facts(name, model, **options):
    for again in ("", " again"):
        history = model.fit(x, batch_size=16, epochs=2, shuffle=False, verbose=0, **options).history
        show(f"{name}{again}", history)
    show(f"{name}: iterations", [int(model.judge_optimizer.iterations), int(model.forger_optimizer.iterations)])
    show(f"{name}: weights", model.get_weights())
    show(f"{name}: slots", [float(np.sum(np.abs(v.numpy()))) > 0 for v in model.forger_optimizer.variables])


facts("adam and momentum", make(keras.optimizers.Adam(0.05), keras.optimizers.SGD(0.1, momentum=0.9)))
facts("clipped", make(keras.optimizers.SGD(0.1, clipnorm=0.1), keras.optimizers.SGD(0.1, global_clipnorm=0.1)))
schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
facts("schedule and average", make(keras.optimizers.SGD(schedule), keras.optimizers.SGD(0.1, use_ema=True)))
