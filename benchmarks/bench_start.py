"""Time from the start of a program to the end of its first step: without and with compiled programs that were kept, and TensorFlow.

`python benchmarks/bench_start.py [--rounds 7] [--out benchmarks/results/start.json]`, as JSON: seconds, medians of rounds in turn.

The program is the demo's model, a convolutional network, which trains on one batch; by `fit` and by a custom loop.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from _report import emit, parser

PROGRAM = """
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy(["CPU:0"])
x, y = np.zeros((64, 8, 8, 1), "f4"), np.zeros(64, "i4")
with strategy.scope():
    model = tf.keras.Sequential([
        tf.keras.Input((8, 8, 1)),
        tf.keras.layers.Conv2D(32, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(64, activation="relu"),
        tf.keras.layers.Dense(10),
    ])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction={reduction!r})
    model.compile("adam", loss)
"""
FIT = PROGRAM.format(reduction="sum_over_batch_size") + "\nmodel.fit(x, y, batch_size=64, epochs=1, verbose=0)\n"
LOOP = (
    PROGRAM.format(reduction="none")
    + """
def step(x, y):
    with tf.GradientTape() as tape:
        value = tf.nn.compute_average_loss(loss(y, model(x, training=True)), global_batch_size=64)
    gradients = tape.gradient(value, model.trainable_variables)
    model.optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return value

dataset = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x, y)).batch(64))
run = tf.function(lambda x, y: strategy.run(step, args=(x, y)))
for batch in dataset:
    float(strategy.reduce(tf.distribute.ReduceOp.SUM, run(*batch), axis=None))
"""
)


def seconds(command: list[str], cache: str) -> float:
    """Run a program from start to end."""
    began = time.perf_counter()
    environment = {**os.environ, "TFDIST_COMPILATION_CACHE": cache, "TF_CPP_MIN_LOG_LEVEL": "3"}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    """Measure and print."""
    options = parser(__doc__, rounds=7)
    args = options.parse_args()
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, program in {"fit": FIT, "custom loop": LOOP}.items():
            file = Path(folder, f"{name.replace(' ', '_')}.py")
            file.write_text(program)
            ours = [sys.executable, "-m", "tfdist_jax", "run", "--devices", "1", str(file)]
            kept = str(Path(folder, "kept"))
            ways = {
                "tfdist-jax, nothing kept": (ours, "off"),
                "tfdist-jax, programs kept": (ours, kept),
                "TensorFlow": ([sys.executable, str(file)], "off"),
            }
            seconds(ours, kept)
            rounds = [{way: seconds(*how) for way, how in ways.items()} for _ in range(args.rounds)]
            medians = {way: round(statistics.median(each[way] for each in rounds), 2) for way in ways}
            ratios = {way: round(medians[way] / medians["TensorFlow"], 2) for way in ways}
            result[name] = {"seconds": medians, "to TensorFlow": ratios}
    emit(result, args.out)


if __name__ == "__main__":
    main()
