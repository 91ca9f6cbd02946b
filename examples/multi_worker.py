"""Handwritten digits on several workers: `model.fit`, then a custom loop with checkpoints.

A plain TensorFlow program: each worker runs it, with its own TF_CONFIG. On JAX, two of them on this machine:
`tfdist-jax launch --workers 2 examples/multi_worker.py`.
"""

import argparse
import json
import os

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

BATCH = 64
LEARNING_RATE = 0.05


def digits():
    """The 1,797 images of scikit-learn as [n, 64] in 0..1."""
    images, labels = load_digits(return_X_y=True)
    return (images / 16).astype("float32"), labels.astype("int64")


def make_model():
    """A small network whose random first weights the first worker gives to all."""
    tf.keras.utils.set_random_seed(1)
    return tf.keras.Sequential(
        [tf.keras.Input((64,)), tf.keras.layers.Dense(64, activation="relu"), tf.keras.layers.Dense(10)]
    )


def train_with_fit(strategy, data, epochs, folder):
    """Train with Keras, going on where a stopped training was; return each epoch's loss and accuracy."""
    with strategy.scope():
        model = make_model()
        model.compile(
            tf.keras.optimizers.SGD(LEARNING_RATE, momentum=0.9),
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    backup = tf.keras.callbacks.BackupAndRestore(os.path.join(folder, "backup"))
    history = model.fit(data, epochs=epochs, verbose=2, callbacks=[backup]).history
    return history["loss"], history["accuracy"]


def train_with_loop(strategy, data, epochs, folder):
    """Train with an own loop that saves a checkpoint after each epoch; return each epoch's mean loss and accuracy."""
    with strategy.scope():
        model = make_model()
        optimizer = tf.keras.optimizers.SGD(LEARNING_RATE, momentum=0.9)
        optimizer.build(model.trainable_variables)
        losses = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
        epoch = tf.Variable(tf.constant(0, tf.int64), trainable=False)

    def train_step(x, y):
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            loss = tf.nn.compute_average_loss(losses(y, logits), global_batch_size=BATCH)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        accuracy.update_state(y, logits)
        return loss

    @tf.function
    def distributed_train_step(x, y):
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(train_step, args=(x, y)), axis=None)

    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epoch=epoch)
    manager = tf.train.CheckpointManager(checkpoint, checkpoint_folder(strategy, folder), max_to_keep=2)
    checkpoint.restore(tf.train.latest_checkpoint(os.path.join(folder, "loop"))).expect_partial()
    batches = strategy.experimental_distribute_dataset(data)
    curve, accuracies = [], []
    for number in range(int(epoch.numpy()), epochs):
        steps = [float(distributed_train_step(x, y)) for x, y in batches]
        epoch.assign_add(1)
        manager.save()
        curve.append(float(np.mean(steps)))
        accuracies.append(float(accuracy.result()))
        accuracy.reset_state()
        print(f"Epoch {number + 1}/{epochs} - loss: {curve[-1]:.4f} - accuracy: {accuracies[-1]:.4f}")
    return curve, accuracies


def is_chief(strategy):
    """Whether this worker writes for all."""
    resolver = strategy.cluster_resolver
    return resolver is None or resolver.task_type in (None, "chief") or resolver.task_id in (None, 0)


def checkpoint_folder(strategy, folder):
    """Where this worker saves: the chief for all, the others for nobody."""
    return os.path.join(folder, "loop" if is_chief(strategy) else f"loop_of_worker_{strategy.cluster_resolver.task_id}")


def main():
    """Train both ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--folder", default="multi_worker", help="where checkpoints are kept, for all workers")
    parser.add_argument("--losses", help="where to write the losses, as JSON")
    args = parser.parse_args()
    # With one worker, a tf.distribute program is the same.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    print(f"{strategy.num_replicas_in_sync} replicas in all")
    data = tf.data.Dataset.from_tensor_slices(digits()).shuffle(2000, seed=7).batch(BATCH)
    runs = {}
    for name, train in (("model.fit", train_with_fit), ("custom loop", train_with_loop)):
        runs[name] = train(strategy, data, args.epochs, args.folder)
        print(f"{name}: loss {runs[name][0][-1]:.4f}, accuracy {runs[name][1][-1]:.4f}" if runs[name][0] else name)
    if args.losses and is_chief(strategy):
        with open(args.losses, "w") as file:
            json.dump(runs, file)


if __name__ == "__main__":
    main()
