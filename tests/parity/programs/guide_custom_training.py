"""A custom training loop with a strategy, as the tutorial builds it: losses, metrics, uneven batches, checkpoints."""

import os
import tempfile

import numpy as np
import tensorflow as tf
from _facts import show

rng = np.random.RandomState(0)
x_train, y_train = rng.rand(50, 6, 6, 1).astype("f4"), rng.randint(0, 3, 50)
x_test, y_test = rng.rand(20, 6, 6, 1).astype("f4"), rng.randint(0, 3, 20)
strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(4)])
GLOBAL_BATCH_SIZE = 4 * strategy.num_replicas_in_sync
train_dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train)).batch(GLOBAL_BATCH_SIZE)
test_dataset = tf.data.Dataset.from_tensor_slices((x_test, y_test)).batch(GLOBAL_BATCH_SIZE)
train_dist_dataset = strategy.experimental_distribute_dataset(train_dataset)
test_dist_dataset = strategy.experimental_distribute_dataset(test_dataset)


def create_model():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((6, 6, 1)),
            tf.keras.layers.Conv2D(4, 3, activation="relu", kernel_regularizer=tf.keras.regularizers.L2(1e-3)),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(3),
        ]
    )
    weights = np.random.RandomState(1)
    model.set_weights([weights.randn(*w.shape).astype("f4") * 0.3 for w in model.get_weights()])
    return model


with strategy.scope():
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction=tf.keras.losses.Reduction.NONE if hasattr(tf.keras.losses, "Reduction") else "none"
    )

    def compute_loss(labels, predictions, model_losses):
        per_example_loss = loss_object(labels, predictions)
        loss = tf.nn.compute_average_loss(per_example_loss, global_batch_size=GLOBAL_BATCH_SIZE)
        if model_losses:
            loss += tf.nn.scale_regularization_loss(tf.add_n(model_losses))
        return loss

    test_loss = tf.keras.metrics.Mean(name="test_loss")
    train_accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
    test_accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="test_accuracy")
    model = create_model()
    optimizer = tf.keras.optimizers.SGD(learning_rate=0.1, momentum=0.9)
    optimizer.build(model.trainable_variables)
    checkpoint = tf.train.Checkpoint(optimizer=optimizer, model=model)


def train_step(inputs):
    images, labels = inputs
    with tf.GradientTape() as tape:
        predictions = model(images, training=True)
        loss = compute_loss(labels, predictions, model.losses)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    train_accuracy.update_state(labels, predictions)
    return loss


def test_step(inputs):
    images, labels = inputs
    predictions = model(images, training=False)
    test_loss.update_state(loss_object(labels, predictions))
    test_accuracy.update_state(labels, predictions)


@tf.function
def distributed_train_step(dataset_inputs):
    per_replica_losses = strategy.run(train_step, args=(dataset_inputs,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)


@tf.function
def distributed_test_step(dataset_inputs):
    return strategy.run(test_step, args=(dataset_inputs,))


prefix = os.path.join(tempfile.mkdtemp(), "ckpt")
for epoch in range(2):
    losses = [distributed_train_step(batch) for batch in train_dist_dataset]
    for batch in test_dist_dataset:
        distributed_test_step(batch)
    if epoch % 2 == 0:
        path = checkpoint.save(prefix)
    show(f"epoch {epoch + 1}", [losses, train_accuracy.result(), test_loss.result(), test_accuracy.result()])
    for metric in (test_loss, train_accuracy, test_accuracy):
        metric.reset_state()

eval_accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="eval_accuracy")
new_model = create_model()
new_checkpoint = tf.train.Checkpoint(model=new_model)
new_checkpoint.restore(path).expect_partial()


@tf.function
def eval_step(images, labels):
    eval_accuracy(labels, new_model(images, training=False))


for images, labels in tf.data.Dataset.from_tensor_slices((x_test, y_test)).batch(8):
    eval_step(images, labels)
show("restored without strategy", eval_accuracy.result())

with strategy.scope():
    show("optimizer's steps", int(optimizer.iterations.numpy()))
iterator = iter(train_dist_dataset)
for _ in range(2):
    total, batches = 0.0, 0
    for _ in range(2):
        total += distributed_train_step(next(iterator))
        batches += 1
show("by an iterator", total / batches)


@tf.function
def distributed_train_epoch(dataset):
    total_loss, num_batches = 0.0, 0
    for batch in dataset:
        total_loss += strategy.reduce("SUM", strategy.run(train_step, args=(batch,)), axis=None)
        num_batches += 1
    return total_loss / tf.cast(num_batches, dtype=tf.float32)


show("inside a function", distributed_train_epoch(train_dist_dataset))
show("weights", [float(np.abs(w).sum()) for w in model.get_weights()])
