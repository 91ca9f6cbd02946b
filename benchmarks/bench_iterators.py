"""Steps of a `tf.function` that takes its batches of an iterator, beside those of one that gets them as tensors, as JSON.

`python benchmarks/bench_iterators.py [--rounds 5] [--steps 300] [--out FILE]`

Steps a second of a 32-64-64-10 perceptron with Adam, 64 rows each, medians of rounds in turn in one process: `iterator` calls
`next(iterator)` in the function, `tensors` outside of it, and `scheduled` is the former, given to two workers of a parameter server in
this process.
"""

# pyright: basic
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import contextlib
import itertools

from _report import describe_machine, emit, parser

SIZES, ROWS = (32, 64, 64, 10), 64


def main():
    """Measure and print."""
    options = parser(__doc__, rounds=5)
    options.add_argument("--steps", type=int, default=300)
    args = options.parse_args()
    import tfdist_jax

    tfdist_jax.use_cpu_devices(2)
    import tfdist_jax.compat.tensorflow as tf

    runs = {"iterator": call_with_iterator(tf), "tensors": call_with_tensors(tf), "scheduled": schedule(tf)}
    times = {name: [] for name in runs}
    for run in runs.values():
        run(5)
    for _ in range(args.rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run(args.steps)
            times[name].append(time.perf_counter() - start)
    speeds = {name: round(args.steps / statistics.median(seconds), 1) for name, seconds in times.items()}
    settings = {"rounds": args.rounds, "steps": args.steps}
    emit({**settings, **describe_machine("jax", "keras"), "steps_per_s": speeds}, args.out)


def make_batches(tf):
    """Return the batches, without an end."""
    import numpy as np

    random = np.random.default_rng(0)
    x, y = random.normal(size=(2048, SIZES[0])).astype("f4"), random.integers(0, SIZES[-1], 2048)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(ROWS).repeat()


def make_training(tf, scope):
    """Return a function of a batch that trains a model of its own."""
    import keras

    with scope:
        weights = [tf.Variable(tf.random.normal([a, b], stddev=0.1)) for a, b in itertools.pairwise(SIZES)]
        biases = [tf.Variable(tf.zeros([b])) for b in SIZES[1:]]
        optimizer = keras.optimizers.Adam(1e-3)
        optimizer.build([*weights, *biases])

    def train(x, y):
        with tf.GradientTape() as tape:
            hidden = x
            for w, b in zip(weights[:-1], biases[:-1], strict=True):
                hidden = tf.nn.relu(hidden @ w + b)
            logits = hidden @ weights[-1] + biases[-1]
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        variables = [*weights, *biases]
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    return train


def taking(tf, train):
    """Return the compiled step of an iterator."""

    @tf.function
    def step(iterator):
        x, y = next(iterator)
        return train(x, y)

    return step


def call_with_iterator(tf):
    """Return what runs so many steps that take their batches."""
    step, iterator = taking(tf, make_training(tf, contextlib.nullcontext())), iter(make_batches(tf))

    def run(count):
        for _ in range(count):
            loss = step(iterator)
        float(loss)

    return run


def call_with_tensors(tf):
    """Return what runs so many steps that are given their batches."""
    step, iterator = tf.function(make_training(tf, contextlib.nullcontext())), iter(make_batches(tf))

    def run(count):
        for _ in range(count):
            loss = step(*next(iterator))
        float(loss)

    return run


def schedule(tf):
    """Return what lets workers run so many steps."""
    spec = tf.train.ClusterSpec({"worker": ["localhost:1", "localhost:2"], "ps": ["localhost:3"]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    step = taking(tf, make_training(tf, strategy.scope()))
    iterator = iter(coordinator.create_per_worker_dataset(lambda: make_batches(tf)))

    def run(count):
        for _ in range(count):
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()

    return run


if __name__ == "__main__":
    main()
