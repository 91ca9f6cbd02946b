"""Handwritten digits with tf.distribute: a small CNN trained by `model.fit`, then by a custom loop.

A plain TensorFlow program. On JAX, over 8 devices: `tfdist-jax run --devices 8 examples/digits.py`.
"""

import argparse
import json
import time
from pathlib import Path

import matplotlib
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BATCH = 64


def digits():
    """The 1,797 images of scikit-learn as [n, 8, 8, 1] in 0..1, four fifths of them to train on."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(images))
    x = (images[order] / 16).reshape(-1, 8, 8, 1).astype("float32")
    y = labels[order].astype("int64")
    split = len(x) * 4 // 5
    return (x[:split], y[:split]), (x[split:], y[split:])


def make_model():
    """A CNN whose first weights come from NumPy, so that every run starts the same."""
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((8, 8, 1)),
            tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    random = np.random.RandomState(1)
    model.set_weights(
        [
            random.normal(0, np.sqrt(2 / np.prod(w.shape[:-1])), w.shape) if len(w.shape) > 1 else np.zeros(w.shape)
            for w in model.weights
        ]
    )
    return model


class StepLosses(tf.keras.callbacks.Callback):
    """Keeps the running mean loss after each step of `fit`."""

    def __init__(self):
        super().__init__()
        self.values = []

    def on_train_batch_end(self, batch, logs=None):
        self.values.append(float((logs or {})["loss"]))


def where(strategy, value):
    """Name the devices that hold a batch or a variable."""
    return sorted({str(part.device) for part in strategy.experimental_local_results(value)})


def train_with_fit(strategy, train, test, epochs):
    """Train with Keras; return the loss and test accuracy of each epoch, and the steps' running losses."""
    with strategy.scope():
        model = make_model()
        model.compile(
            optimizer=tf.keras.optimizers.Adam(2e-3),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    steps = StepLosses()
    history = model.fit(train, epochs=epochs, validation_data=test, callbacks=[steps], verbose=2).history
    return history["loss"], history["val_accuracy"], steps.values


def train_with_loop(strategy, train, test, epochs):
    """Train with an own loop; return the loss and test accuracy of each epoch, and the steps' losses."""
    with strategy.scope():
        model = make_model()
        optimizer = tf.keras.optimizers.Adam(2e-3)
        optimizer.build(model.trainable_variables)
        losses = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy()

    def train_step(x, y):
        with tf.GradientTape() as tape:
            per_example = losses(y, model(x, training=True))
            loss = tf.nn.compute_average_loss(per_example, global_batch_size=BATCH)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    def test_step(x, y):
        accuracy.update_state(y, model(x, training=False))

    @tf.function
    def distributed_train_step(x, y):
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(train_step, args=(x, y)), axis=None)

    @tf.function
    def distributed_test_step(x, y):
        strategy.run(test_step, args=(x, y))

    curve, accuracies, steps = [], [], []
    batches, test_batches = (
        strategy.experimental_distribute_dataset(train),
        strategy.experimental_distribute_dataset(test),
    )
    for epoch in range(epochs):
        epoch_losses = [distributed_train_step(x, y) for x, y in batches]
        steps += [float(loss) for loss in epoch_losses]
        accuracy.reset_state()
        for x, y in test_batches:
            distributed_test_step(x, y)
        curve.append(float(np.mean(steps[-len(epoch_losses) :])))
        accuracies.append(float(accuracy.result()))
        print(f"epoch {epoch + 1}/{epochs} - loss: {curve[-1]:.4f} - test accuracy: {accuracies[-1]:.4f}")
    x, _ = next(iter(batches))
    print("A batch lies on", where(strategy, x))
    print("The weights lie on", where(strategy, model.trainable_variables[0].value))
    return curve, accuracies, steps


def draw(runs, path):
    """Draw loss and accuracy of both runs."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5))
    for name, (losses, accuracies, _) in runs.items():
        left.plot(range(1, len(losses) + 1), losses, label=name)
        right.plot(range(1, len(losses) + 1), accuracies, label=name)
    left.set(xlabel="epoch", ylabel="training loss", yscale="log")
    right.set(xlabel="epoch", ylabel="test accuracy", ylim=(0.8, 1.0))
    right.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    """Train both ways, show the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--picture", default="digits.png", help="where to draw the curves")
    parser.add_argument("--losses", help="where to write the losses of all steps, as JSON")
    args = parser.parse_args()
    strategy = tf.distribute.MirroredStrategy()
    print(f"{strategy.num_replicas_in_sync} replicas on", [device.name for device in tf.config.list_logical_devices()])
    train, test = (tf.data.Dataset.from_tensor_slices(part).batch(BATCH) for part in digits())
    runs = {}
    for name, train_it in (("model.fit", train_with_fit), ("custom loop", train_with_loop)):
        started = time.time()
        runs[name] = train_it(strategy, train, test, args.epochs)
        print(
            f"{name}: test accuracy {runs[name][1][-1]:.4f} after {args.epochs} epochs, {time.time() - started:.1f} s\n"
        )
    draw(runs, args.picture)
    print("The curves are drawn in", Path(args.picture).resolve())
    if args.losses:
        Path(args.losses).write_text(json.dumps({name: run[2] for name, run in runs.items()}))


if __name__ == "__main__":
    main()
