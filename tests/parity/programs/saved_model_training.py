"""Training what a SavedModel holds: gradients through its functions, new values in its variables."""

import os
import tempfile

import tensorflow as tf
from _facts import show

folder = os.path.join(tempfile.mkdtemp(), "model")


class Regression(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable([[0.5], [-0.25]], name="w")
        self.b = tf.Variable([0.1], name="b")
        self.mean = tf.Variable([0.0, 0.0], trainable=False, name="mean")

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32)])
    def __call__(self, x):
        return tf.tanh(tf.matmul(x - self.mean, self.w)) + self.b

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32)])
    def see(self, x):
        self.mean.assign(0.9 * self.mean + 0.1 * tf.reduce_mean(x, axis=0))
        return self.mean


model = Regression()
tf.saved_model.save(model, folder)
loaded = tf.saved_model.load(folder)
variables = [loaded.w, loaded.b]
x = tf.constant([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5], [-1.0, 1.0]])
y = tf.constant([[1.0], [0.0], [0.5], [0.2]])

with tf.GradientTape() as tape:
    tape.watch(x)
    loss = tf.reduce_mean(tf.square(loaded(x) - y))
show("loss", loss)
show("gradients", tape.gradient(loss, [*variables, x]))

rate = 0.1
for step in range(4):
    batch = slice(0, 4 if step % 2 else 3)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(loaded(x[batch]) - y[batch]))
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(rate * gradient)
    show("step", loss)
show("trained", variables)

show("seen", [loaded.see(x), loaded.mean])


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(loaded(x) - y))
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(rate * gradient)
    loaded.see(x)
    return loss


for _ in range(3):
    show("compiled", train_step(x, y))
show("mean", loaded.mean)

tf.saved_model.save(loaded, folder)
again = tf.saved_model.load(folder)
show("fine-tuned", [again.w, again.b, again.mean, again(x[:2])])

checkpoint = tf.train.Checkpoint(model=again)
path = checkpoint.save(os.path.join(tempfile.mkdtemp(), "ckpt"))
again.w.assign(tf.zeros([2, 1]))
checkpoint.restore(path)
show("restored", again.w)
