"""Trainings on two workers, of which some are killed, frozen or asked to stop, at moments that a seed chooses.

`test_failures.py` tries a few faults, `soak.py` many.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfdist_jax.testing import Chaos, Fault, FaultKind, Moment, Training

_WORKERS = 2
_EPOCHS, _ROWS, _BATCH = 14, 46, 8

_PROGRAM = f"""
import faulthandler, json, os, signal, sys, time
faulthandler.register(signal.SIGUSR1, all_threads=True)
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
def mark(phase, step=0):
    print("at", phase, step)

import numpy as np, tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
EPOCHS, ROWS, BATCH = {_EPOCHS}, {_ROWS}, {_BATCH}

class Seen(tf.keras.layers.Layer):
    # Counts in a variable how often each row is trained on: the first column is its number.
    def build(self, shape):
        self.counts = self.add_weight(shape=(ROWS,), initializer="zeros", trainable=False, aggregation="sum")
    def call(self, x, training=False):
        if training:
            self.counts.assign_add(tf.reduce_sum(tf.one_hot(tf.cast(x[:, 0], tf.int32), ROWS), axis=0))
        return x[:, 1:]

tf.keras.utils.set_random_seed(5)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((5,)), Seen(), tf.keras.layers.Dense(256), tf.keras.layers.Dropout(0.2),
                                 tf.keras.layers.Dense(256), tf.keras.layers.Dense(1)])
    model.compile("adam", "mse")
x = np.random.default_rng(0).normal(size=(ROWS, 5)).astype("f4")
y = x[:, 1:2].copy()
x[:, 0] = np.arange(ROWS)

def end():
    weights = [w.tolist() for w in model.get_weights()]
    seen = model.layers[0].counts.numpy().tolist()
    with open(f"end{{index}}.new", "w") as file:
        json.dump({{"weights": weights, "seen": seen}}, file)
    os.rename(f"end{{index}}.new", f"end{{index}}")
"""

PROGRAMS = {
    "fit": """
class Backup(tf.keras.callbacks.BackupAndRestore):
    def _save_model(self):
        mark("checkpoint")
        super()._save_model()

class Note(tf.keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        mark("compile")
    def on_train_batch_end(self, batch, logs=None):
        mark("train", int(self.model.optimizer.iterations.numpy()))
        time.sleep(0.02)
    def on_test_batch_begin(self, batch, logs=None):
        mark("evaluate")

model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0, validation_data=(x, y),
          callbacks=[Backup("backup", save_freq=4, delete_checkpoint=False), Note()])
end()
""",
    "loop": """
step, epoch = tf.Variable(0), tf.Variable(0)
rows = tf.data.Dataset.from_tensor_slices((x, y))
batches = strategy.experimental_distribute_dataset(rows.shuffle(ROWS, seed=3).batch(BATCH))
checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer, step=step, epoch=epoch, iterator=iter(batches))
# As TensorFlow's guide has it: the first worker's checkpoints count, the others write to folders of their own.
manager = tf.train.CheckpointManager(checkpoint, "checkpoints" if index == 0 else f"temporary{index}", max_to_keep=2)
with strategy.scope():
    model.optimizer.build(model.trainable_variables)
checkpoint.restore(tf.train.latest_checkpoint("checkpoints"))

def loss_of(batch, training):
    rows, targets = batch
    return tf.nn.compute_average_loss(tf.square(model(rows, training=training) - targets)[:, 0], global_batch_size=BATCH)

def train(batch):
    with tf.GradientTape() as tape:
        loss = loss_of(batch, True)
    model.optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss

@tf.function
def train_step(batch):
    return strategy.reduce("SUM", strategy.run(train, args=(batch,)), axis=None)

@tf.function
def test_step(batch):
    return strategy.reduce("SUM", strategy.run(lambda part: loss_of(part, False), args=(batch,)), axis=None)

while int(epoch) < EPOCHS:
    for batch in checkpoint.iterator:
        mark("compile")
        train_step(batch)
        step.assign_add(1)
        mark("train", int(step))
        time.sleep(0.02)
        if int(step) % 4 == 0:
            mark("checkpoint")
            manager.save()
    for batch in strategy.experimental_distribute_dataset(rows.batch(BATCH)):
        mark("evaluate")
        test_step(batch)
    epoch.assign_add(1)
    checkpoint.iterator = iter(batches)
end()
""",
}

KINDS: tuple[FaultKind, ...] = ("kill", "freeze", "terminate")
# A start, and what a training says it is at.
MOMENTS = (
    Moment(delay_s=6.0),
    Moment("at compile", delay_s=1.5),
    Moment("at train", up_to=7, delay_s=0.03),
    Moment("at evaluate", up_to=4, delay_s=0.03),
    Moment("at checkpoint", up_to=2, delay_s=0.03),
)


def choose_faults(chaos: Chaos, number: int) -> list[Fault]:
    """Choose the faults of a training, one for each of its starts."""
    return [chaos.choose_fault([f"worker {i}" for i in range(_WORKERS)], KINDS, MOMENTS) for _ in range(number)]


def launch(
    chaos: Chaos, name: str, folder: Path, *, restarts: int = 0, env: Mapping[str, str | None] | None = None
) -> Training:
    """Start one of `PROGRAMS`.

    Args:
        chaos: What faults come from.
        name: Which.
        folder: Where it runs; its end is there.
        restarts: How often the launcher may start it again.
        env: What differs from an environment without what would change a training.
    """
    folder.mkdir(parents=True)
    (folder / "program.py").write_text(_PROGRAM + PROGRAMS[name])
    alien = ("JAX_", "XLA_", "TF_", "TFDIST_", "KERAS_", "NPROC", "CUDA_", "PYTEST_")
    kept = ("JAX_COMPILATION", "JAX_PERSISTENT")
    removed = {name: None for name in os.environ if name.startswith(alien) and not name.startswith(kept)}
    return chaos.launch(
        folder / "program.py",
        workers=_WORKERS,
        max_restarts=restarts,
        options=["--stop-timeout", "2", "--start-timeout", "600"],
        env={**removed, "JAX_PLATFORMS": "cpu", **(env or {})},
        folder=folder,
    )


def first_steps(training: Training) -> dict[int, int]:
    """Return which step each start of a training has done first."""
    said = {start: training.output_of(start=start).splitlines() for start in range(training.starts)}
    steps = {
        start: [int(line.split()[2]) for line in lines if line.startswith("at train")] for start, lines in said.items()
    }
    return {start: found[0] for start, found in steps.items() if found}


def read_end(training: Training) -> dict[str, Any]:
    """Return the weights at the end, which both workers have, and how often each row was trained on."""
    ends = [json.loads((training.folder / f"end{i}").read_text()) for i in range(_WORKERS)]
    assert ends[0] == ends[1], "the workers differ"
    assert ends[0]["seen"] == [_EPOCHS] * _ROWS, ends[0]["seen"]
    return ends[0]
