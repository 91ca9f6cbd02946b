"""Custom training under MirroredStrategy: a checkpoint in each epoch, restored for evaluation without a strategy."""

import os
import tempfile

import numpy as np
import tensorflow as tf
from _facts import show

strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
rng = np.random.RandomState(0)
images = rng.normal(size=(24, 4)).astype("float32")
labels = (images[:, 0] > 0).astype("int64")
BATCH, EPOCHS = 8, 3
data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH, drop_remainder=True)
distributed = strategy.experimental_distribute_dataset(data)


def create_model():
    model = tf.keras.Sequential([tf.keras.layers.Dense(8, activation="tanh"), tf.keras.layers.Dense(2)])
    model.build((None, 4))
    return model


prefix = os.path.join(tempfile.mkdtemp(), "ckpt")
with strategy.scope():
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    model = create_model()
    start = np.random.RandomState(1)
    model.set_weights([start.normal(size=w.shape).astype("float32") for w in model.get_weights()])
    optimizer = tf.keras.optimizers.SGD(0.05, momentum=0.9)
    optimizer.build(model.trainable_variables)
    checkpoint = tf.train.Checkpoint(optimizer=optimizer, model=model)


def train_step(inputs):
    x, y = inputs
    with tf.GradientTape() as tape:
        loss = tf.nn.compute_average_loss(loss_object(y, model(x, training=True)), global_batch_size=BATCH)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


@tf.function
def distributed_train_step(inputs):
    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(train_step, args=(inputs,)), axis=None)


def epochs(first, last):
    for epoch in range(first, last):
        losses = [distributed_train_step(batch) for batch in distributed]
        show(f"epoch {epoch}", losses)
        show("saved", os.path.basename(checkpoint.save(prefix)))


epochs(0, EPOCHS)
trained = model.get_weights()
latest = tf.train.latest_checkpoint(os.path.dirname(prefix))

new_model = create_model()
new_optimizer = tf.keras.optimizers.SGD(0.05, momentum=0.9)
new_optimizer.build(new_model.trainable_variables)
new_checkpoint = tf.train.Checkpoint(optimizer=new_optimizer, model=new_model)
new_checkpoint.restore(latest).expect_partial()
show("restored, bit for bit", all((a == b).all() for a, b in zip(trained, new_model.get_weights())))
show("evaluated", new_model(images[:2]))
show("iterations", int(new_optimizer.iterations.numpy()))

epochs(EPOCHS, EPOCHS + 1)
after = model.get_weights()
first = os.path.join(os.path.dirname(prefix), "ckpt-3")
checkpoint.restore(first)
show("back", all((a == b).all() for a, b in zip(trained, model.get_weights())))
epochs(EPOCHS, EPOCHS + 1)
show("the same again", all(np.allclose(a, b) for a, b in zip(after, model.get_weights())))
