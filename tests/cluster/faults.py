"""Trainings on two workers, of which some are killed, frozen or asked to stop, at moments that a seed chooses.

`test_failures.py` tries a few faults, `soak.py` many.
"""

import contextlib
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, final

_WORKERS = 2
_EPOCHS, _ROWS, _BATCH = 14, 46, 8
_POLL_S = 0.001

_PROGRAM = f"""
import faulthandler, json, os, signal, sys, time
faulthandler.register(signal.SIGUSR1, all_threads=True)
cluster, attempt = json.loads(os.environ["TFDIST_JAX_CLUSTER"]), os.environ["TFDIST_JAX_RESTART"]
index = cluster["task"]["index"]
marks = os.open(f"marks{{index}}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def mark(phase, step=0):
    os.write(marks, f"{{attempt}} {{phase}} {{step}}\\n".encode())

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

# Phases, how often at most a training passes them before the fault, and how long at most it waits then.
_MOMENTS = {"start": (1, 6.0), "compile": (1, 1.5), "train": (7, 0.03), "evaluate": (4, 0.03), "checkpoint": (2, 0.03)}


@final
@dataclasses.dataclass(frozen=True)
class Fault:
    """What happens to a worker, and when.

    Attributes:
        signal: The signal's name.
        victims: The workers' indices.
        phase: What the first victim is at: "start" is when its process is there.
        count: How often it has said so since the last start, this time included.
        delay_s: How long after that.
    """

    signal: str
    victims: tuple[int, ...]
    phase: str
    count: int
    delay_s: float


def faults_of(seed: int, training: int, number: int) -> list[Fault]:
    """Choose the faults of a training, one for each of its starts; equal arguments, equal faults."""
    chance = random.Random(f"{seed}/{training}")
    return [_fault(chance) for _ in range(number)]


def _fault(chance: random.Random) -> Fault:
    name = chance.choice(["SIGKILL", "SIGSTOP", "SIGTERM"])
    victims, phase = chance.choice([(0,), (0,), (1,), (1,), (0, 1)]), chance.choice(list(_MOMENTS))
    count, delay_s = _MOMENTS[phase]
    return Fault(name, victims, phase, chance.randint(1, count), round(chance.uniform(0, delay_s), 4))


@final
class Training:
    """A training under `tfdist-jax launch`, in a folder of its own, that faults can happen to.

    Args:
        name: Which of `PROGRAMS`.
        folder: Where it runs; its marks, logs and end are there.
        restarts: How often the launcher may start it again.
        devices: Devices of each worker.
        env: What differs from this process's environment.
    """

    def __init__(
        self, name: str, folder: Path, *, restarts: int = 0, devices: int = 1, env: Mapping[str, str] | None = None
    ) -> None:
        folder.mkdir(parents=True)
        (folder / "program.py").write_text(_PROGRAM + PROGRAMS[name])
        self.folder = folder
        options = ["--workers", str(_WORKERS), "--devices-per-worker", str(devices), "--max-restarts", str(restarts)]
        limits = ["--heartbeat-timeout", "10", "--stop-timeout", "2", "--start-timeout", "600"]
        with (folder / "launch.txt").open("ab") as log:
            self._launcher = subprocess.Popen(
                [sys.executable, "-m", "tfdist_jax", "launch", *options, *limits, "program.py"],
                cwd=folder,
                env={**environment(), **(env or {}), MARK: f"{folder}/"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def strike(self, attempt: int, fault: Fault, limit_s: float) -> None:
        """Let a fault happen in a start of the training.

        Raises:
            StuckError: If its moment does not come.
            EarlyEndError: If the training, or a victim, has ended before.
        """
        pids = [self._worker(attempt, victim, limit_s) for victim in fault.victims]
        if fault.phase != "start":
            passed = lambda: sum(mark[:2] == (attempt, fault.phase) for mark in self.marks(fault.victims[0]))
            self._wait(lambda: passed() >= fault.count, limit_s)
        time.sleep(fault.delay_s)
        try:
            for pid in pids:
                os.kill(pid, signal.Signals[fault.signal])
        except ProcessLookupError as error:
            raise EarlyEndError(f"a worker had ended before start {attempt}'s fault") from error

    def wait(self, limit_s: float) -> int:
        """Return the launcher's exit code, or raise `StuckError`."""
        self._wait(lambda: self._launcher.poll() is not None, limit_s, ends=True)
        return self._launcher.returncode

    def marks(self, worker: int) -> list[tuple[int, str, int]]:
        """Return what a worker has said it is at: the number of the start, the phase and the step."""
        path = self.folder / f"marks{worker}"
        said = (line.split() for line in path.read_text().splitlines()) if path.exists() else ()
        return [(int(attempt), phase, int(step)) for attempt, phase, step in said]

    def first_steps(self) -> dict[int, int]:
        """Return which step each start of the training has done first."""
        return {attempt: step for attempt, phase, step in reversed(self.marks(0)) if phase == "train"}

    def end(self) -> dict[str, Any]:
        """Return the weights at the end, which both workers have, and how often each row was trained on."""
        ends = [json.loads((self.folder / f"end{i}").read_text()) for i in range(_WORKERS)]
        assert ends[0] == ends[1], "the workers differ"
        assert ends[0]["seen"] == [_EPOCHS] * _ROWS, ends[0]["seen"]
        return ends[0]

    @property
    def log(self) -> str:
        """What the launcher has printed, the first worker's output included."""
        return (self.folder / "launch.txt").read_text(errors="replace")

    def left(self) -> list[int]:
        """Return the processes of this training that are still there."""
        return [pid for pid, _ in processes(f"{self.folder}/")]

    def kill(self) -> None:
        """End what is left of it."""
        kill_all(f"{self.folder}/")
        self._launcher.wait(60)

    def _worker(self, attempt: int, index: int, limit_s: float) -> int:
        found: list[int] = []

        def is_there() -> bool:
            for pid, env in processes(f"{self.folder}/"):
                cluster = env.get("TFDIST_JAX_CLUSTER")
                if cluster and int(env["TFDIST_JAX_RESTART"]) == attempt:
                    found.extend([pid] if json.loads(cluster)["task"]["index"] == index else [])
            return bool(found)

        self._wait(is_there, limit_s, poll_s=0.05)
        return found[0]

    def _wait(self, until: Any, limit_s: float, *, ends: bool = False, poll_s: float = _POLL_S) -> None:
        """Wait; `limit_s` counts from the last sign of life."""
        signs = [self.folder / name for name in ("launch.txt", *(f"marks{i}" for i in range(_WORKERS)))]
        began = time.time()
        while not until():
            if not ends and self._launcher.poll() is not None:
                raise EarlyEndError(f"the launcher has ended with {self._launcher.returncode}")
            last = max([began, *(sign.stat().st_mtime for sign in signs if sign.exists())])
            if time.time() - last > limit_s:
                raise StuckError(f"no sign of life for {limit_s} s")
            time.sleep(poll_s)


class StuckError(Exception):
    """A training that does not go on."""


class EarlyEndError(Exception):
    """A training that has ended before a fault could happen to it."""


MARK = "TFDIST_TEST_TRAINING"


def environment() -> dict[str, str]:
    """Return this process's environment without what would change a training."""
    alien = ("JAX_", "XLA_", "TF_", "TFDIST_", "KERAS_", "NPROC", "CUDA_", "PYTEST_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(alien)}
    compiled = {
        name: value for name, value in os.environ.items() if name.startswith(("JAX_COMPILATION", "JAX_PERSISTENT"))
    }
    return {**kept, "JAX_PLATFORMS": "cpu", **compiled}


def processes(mark: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the processes, with the environment they were started with, of trainings whose folder begins with `mark`."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                text = (entry / "environ").read_bytes().decode(errors="replace")
                env = dict(pair.partition("=")[::2] for pair in text.split("\0") if pair)
                if env.get(MARK, "").startswith(mark):
                    yield int(entry.name), env


def kill_all(mark: str) -> None:
    """End all processes of trainings whose folder begins with `mark`."""
    while found := list(processes(mark)):
        for pid, _ in found:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
