"""Eager code, op by op and at shapes that are new, beside TensorFlow; two processes in turn, as JSON.

`python benchmarks/bench_eager.py [--rounds 9] [--out benchmarks/results/eager.json]`

Milliseconds of a call: medians over the rounds. Of calls at a new shape, each round takes the median of five; of others the mean of 50.
"""

# pyright: basic, reportArgumentType=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false
import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from _report import emit, parser

NEW, WARM = 5, 50


def make_calls(tf):
    """Return functions of a size: of what is measured at the same size again and again, and at new ones."""
    keras, random = tf.keras, np.random.default_rng(0)
    x, weights = tf.constant(np.ones((32, 32), "f4")), [tf.Variable(np.eye(32, dtype="f4")) for _ in range(2)]
    labels, scalar, rows = tf.constant(np.arange(32) % 10), tf.Variable(1.0), np.ones((32, 8), "f4")
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(4)])
    optimizer, loss = keras.optimizers.Adam(), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer.build(model.trainable_variables)
    embedding = keras.layers.Embedding(100, 8)
    embedding.build((None,))
    policy = keras.Sequential([keras.Input((4,)), keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(2)])
    policy_optimizer = keras.optimizers.SGD(0.01)

    def tape_step(_):
        with tf.GradientTape() as tape:
            value = tf.reduce_mean(tf.nn.relu(x @ weights[0]) @ weights[1])
        for variable, gradient in zip(weights, tape.gradient(value, weights), strict=True):
            variable.assign_sub(0.01 * gradient)

    def batch(size):
        return tf.constant(random.normal(size=(size, 8)).astype("f4"))

    def keras_step(size):
        inputs, targets = batch(size), tf.constant(random.integers(0, 4, size))
        with tf.GradientTape() as tape:
            value = loss(targets, model(inputs, training=True))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))

    def sentence(size):
        vectors = embedding(tf.constant(random.integers(0, 100, size)))
        return tf.reduce_max(tf.nn.softmax(vectors, axis=-1), axis=0).numpy()

    def reinforce(size):
        states = random.normal(size=(size, 4)).astype("f4")
        for state in states:
            logits = policy(state[None])
            tf.random.categorical(logits, 1)
        returns = tf.cumsum(tf.ones(size), reverse=True)
        returns = (returns - tf.reduce_mean(returns)) / (tf.math.reduce_std(returns) + 1e-6)
        actions = tf.constant(random.integers(0, 2, size))
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(actions, policy(states))
            value = tf.reduce_sum(losses * returns)
        variables = policy.trainable_variables
        policy_optimizer.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))

    doubled = tf.function(lambda x: 2 * x + 1, reduce_retracing=False)
    warm = {
        "a + b": lambda _: x + x,
        "tf.constant": lambda _: tf.constant(rows),
        "assign_add": lambda _: scalar.assign_add(1.0),
        "tf.concat": lambda _: tf.concat([x, x], 0),
        "softmax": lambda _: tf.nn.softmax(x),
        "one_hot": lambda _: tf.one_hot(labels, 10),
        "random.normal": lambda _: tf.random.normal((32,)),
        "tape of two layers": tape_step,
        "Keras model": lambda size: model(batch(size)).numpy(),
        "Keras step": keras_step,
    }
    new = {
        "Keras model": lambda size: model(batch(size)).numpy(),
        "Keras step": keras_step,
        "embedding and softmax": sentence,
        "episode of REINFORCE": reinforce,
        "tf.function": lambda size: doubled(tf.ones(size)).numpy(),
    }
    return warm, new


def serve(name):
    """Measure once for every line of the standard input."""
    if name == "tensorflow":
        import tensorflow as tf
    else:
        import tfdist_jax

        tfdist_jax.use_cpu_devices(1)
        import tfdist_jax.compat.tensorflow as tf
    tf.get_logger().setLevel("ERROR")
    warm, new = make_calls(tf)
    size = 20

    def seconds(call, size):
        started = time.perf_counter()
        call(size)
        return time.perf_counter() - started

    for call in warm.values():
        for _ in range(40):  # After 32 calls a program is compiled.
            call(16)
    for call in new.values():
        call(16)
    for _ in sys.stdin:
        result = {}
        for label, call in warm.items():
            result[label] = sum(seconds(call, 16) for _ in range(WARM)) / WARM
        for label, call in new.items():
            result[f"{label}, new shape"] = statistics.median(seconds(call, size + i) for i in range(NEW))
        size += NEW
        print(json.dumps(result), flush=True)


def main():
    """Measure and print."""
    options = parser(__doc__, rounds=9)
    options.add_argument("--serve", help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.serve:
        return serve(args.serve)
    start = lambda name: subprocess.Popen(
        [sys.executable, __file__, "--serve", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    processes = {name: start(name) for name in ("tfdist_jax", "tensorflow")}
    rounds = {name: [] for name in processes}
    for _ in range(args.rounds):
        for name, process in processes.items():
            process.stdin.write("\n")
            process.stdin.flush()
            rounds[name].append(json.loads(process.stdout.readline()))
    for process in processes.values():
        process.stdin.close()
        process.wait()
    result = {}
    for label in rounds["tensorflow"][0]:
        taken = {name: [each[label] for each in rounds[name]] for name in processes}
        ratios = [ours / theirs for ours, theirs in zip(*taken.values(), strict=True)]
        result[label] = {
            **{f"{name} ms": round(statistics.median(each) * 1000, 4) for name, each in taken.items()},
            "ratio": round(statistics.median(ratios), 2),
            "range": [round(min(ratios), 2), round(max(ratios), 2)],
        }
    return emit(result, args.out)


if __name__ == "__main__":
    main()
