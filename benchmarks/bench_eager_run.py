"""A step called by an eager `strategy.run`, against the same step inside `tf.function`; interleaved, as JSON.

`python benchmarks/bench_eager_run.py [--devices 4] [--rounds 11] [--out benchmarks/results/eager_run.json]`
"""

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import contenders
from _report import emit, parser

STEPS = 20


def main():
    """Measure and print."""
    args = parser(__doc__, rounds=11).parse_args()

    import tfdist_jax

    tfdist_jax.use_cpu_devices(args.devices)
    import tfdist_jax.compat.tensorflow as tf

    result = {"devices": args.devices, "steps_per_round": STEPS, "models": {}}
    for model in ("mlp", "cnn", "resnet", "tiny"):
        runs = {
            "tf.function": contenders.custom_loop(tf, model)[0],
            "eager": contenders.custom_loop(tf, model, compiled=False)[0],
        }
        for run in runs.values():
            run(3)
        times = {name: [] for name in runs}
        for _ in range(args.rounds):
            for name, run in runs.items():
                started = time.perf_counter()
                run(STEPS)
                times[name].append((time.perf_counter() - started) / STEPS * 1000)
        ratios = [e / c for e, c in zip(times["eager"], times["tf.function"], strict=True)]
        result["models"][model] = {
            "ms_per_step": {name: statistics.median(values) for name, values in times.items()},
            "eager_over_tf_function": statistics.median(ratios),
        }
    emit(result, args.out)


if __name__ == "__main__":
    main()
