"""Time until a training step is a program that XLA can compile: a custom loop here, Keras on JAX and Flax by hand; as JSON.

`python benchmarks/bench_trace.py [--rounds 5] [--out benchmarks/results/trace.json]`, seconds, medians of processes in turn.

The first trace of a process finds nothing in JAX's caches, and for a loop what AutoGraph converts counts, too. The layers, their sizes and
the optimizer are the same: ResNet-50, and an encoder of 12 layers.
"""

# pyright: basic
import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))
from _report import describe_machine, emit, parser

CONTENDERS = ("flax", "hand-written", "custom loop")


def main():
    """Measure and print."""
    options = parser(__doc__, rounds=5)
    options.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.worker:
        print(trace(*args.worker))
        return
    result = {"rounds": args.rounds, **describe_machine("jax", "keras", "flax"), "seconds": {}, "times_flax": {}}
    for model in ("resnet50", "deep transformer"):
        times = {name: [] for name in CONTENDERS}
        for _ in range(args.rounds):
            for name in CONTENDERS:
                times[name].append(start(name, model))
        medians = {name: statistics.median(values) for name, values in times.items()}
        result["seconds"][model] = medians
        result["times_flax"][model] = {name: median / medians["flax"] for name, median in medians.items()}
    emit(result, args.out)


def start(name, model):
    """Return the seconds that a contender takes in a process of its own."""
    command = [sys.executable, __file__, "--worker", name, model]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return float(ran.stdout.splitlines()[-1])


def trace(name, model):
    """Trace and lower a step, and return the seconds."""
    import jax

    import tfdist_jax

    tfdist_jax.use_cpu_devices(1)
    if name == "flax":
        import flax_models

        lower = flax_models.write_step(model)
    else:
        import contenders

        import tfdist_jax.compat.tensorflow as tf

        _, lower = contenders.hand_written(model) if name == "hand-written" else contenders.custom_loop(tf, model)
    with mock.patch.object(jax.stages.Lowered, "compile", lambda self: self):
        started = time.perf_counter()
        lower()
        return time.perf_counter() - started


if __name__ == "__main__":
    main()
