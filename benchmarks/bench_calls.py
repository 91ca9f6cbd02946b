"""What `evaluate`, `predict`, `train_on_batch` and a loop over a distributed dataset take beside hand-written JAX; as JSON.

`python benchmarks/bench_calls.py [mlp ...] [--devices 4] [--rounds 15] [--out benchmarks/results/calls.json]`

Milliseconds a batch, medians of rounds in turn in one process, so that all run with the same threads and allocator. By hand, each batch is
brought to the devices while the one before is computed, and `predict`'s results are fetched one batch later; `train_on_batch` gives its
loss as a number, and so does the step by hand.
"""

# pyright: basic
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import contenders
from _report import describe_machine, emit, parser
from models import MODELS, make_model

SECONDS = 0.4


def main():
    """Measure and print."""
    options = parser(__doc__, rounds=15)
    options.add_argument("models", nargs="*", default=["mlp"])
    args = options.parse_args()
    import tfdist_jax

    tfdist_jax.use_cpu_devices(args.devices)
    result = {"devices": args.devices, "rounds": args.rounds, **describe_machine("jax", "keras"), "models": {}}
    for model in args.models:
        result["models"][model] = measure(model, args.rounds)
    emit(result, args.out)


def measure(name, rounds):
    """Return milliseconds of a batch, and the speed of hand-written JAX that each call has."""
    import tfdist_jax.compat.tensorflow as tf

    by_hand = {
        "evaluate": _write_evaluation(name),
        "predict": _write_prediction(name),
        "train_on_batch": contenders.hand_written(name, feed=True, donate=False, read=True)[0],
        "fed loop": contenders.hand_written(name, feed=True, donate=False)[0],
    }
    ours = {**_call_keras(tf, name), "fed loop": contenders.custom_loop(tf, name, feed=True)[0]}
    result = {}
    for call, run in ours.items():
        pair = {"ms": run, "by_hand_ms": by_hand[call]}
        times = _take_turns(pair, rounds)
        ratios = [b / a for a, b in zip(times["ms"], times["by_hand_ms"], strict=True)]
        result[call] = {key: statistics.median(values) for key, values in times.items()}
        result[call]["speed_of_hand_written"] = statistics.median(ratios)
    return result


def _take_turns(runs, rounds):
    steps = {}
    for key, run in runs.items():
        run(5)
        started = time.perf_counter()
        run(5)
        steps[key] = max(5, round(SECONDS * 5 / (time.perf_counter() - started)))
    times = {key: [] for key in runs}
    for _ in range(rounds):
        for key, run in runs.items():
            started = time.perf_counter()
            run(steps[key])
            times[key].append((time.perf_counter() - started) / steps[key] * 1e3)
    return times


def _call_keras(tf, name):
    """Return `run(n)` for each call."""
    x, y = MODELS[name].batch()
    with tf.distribute.MirroredStrategy().scope():
        model = make_model(tf.keras, name)
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.Adam(1e-3), loss)
    batches = tf.data.Dataset.from_tensors((x, y)).repeat()
    rows = batches.map(lambda x, y: x)

    def train(steps):
        for _ in range(steps):
            model.train_on_batch(x, y)

    return {
        "evaluate": lambda steps: model.evaluate(batches, steps=steps, verbose=0),
        "predict": lambda steps: model.predict(rows, steps=steps, verbose=0),
        "train_on_batch": train,
    }


def _distribute(name):
    import jax
    import keras
    from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))
    model = make_model(keras, name)
    weights = jax.device_put([v.value for v in model.variables], NamedSharding(mesh, P()))
    trained = len(model.trainable_variables)

    def compute(weights, x):
        return model.stateless_call(weights[:trained], weights[trained:], x, training=False)[0]

    return compute, weights, NamedSharding(mesh, P("data"))


def _write_evaluation(name):
    import jax
    import keras

    compute, weights, split = _distribute(name)
    batch = MODELS[name].batch()
    losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    step = jax.jit(lambda weights, total, x, y: total + losses(y, compute(weights, x)))

    def run(steps):
        total, pending = 0.0, None
        for _ in range(steps):
            total = step(weights, total, *jax.device_put(batch, split))
            jax.block_until_ready(pending)
            pending = total
        return float(total) / steps / len(batch[1])

    return run


def _write_prediction(name):
    import jax
    import numpy as np

    compute, weights, split = _distribute(name)
    step = jax.jit(compute)
    x, _ = MODELS[name].batch()

    def run(steps):
        results, pending = [], None
        for _ in range(steps):
            computed = step(weights, jax.device_put(x, split))
            if pending is not None:
                results.append(np.asarray(pending))
            pending = computed
        return np.concatenate([*results, np.asarray(pending)])

    return run


if __name__ == "__main__":
    main()
