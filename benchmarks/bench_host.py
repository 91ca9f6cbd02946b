"""What a step costs the host's main thread, with a model that leaves the devices nothing to do; as JSON.

`python benchmarks/bench_host.py [--devices 4] [--rounds 11] [--out benchmarks/results/host.json]`

Time is the main thread's own processor time, so waiting for devices and other programs on the machine do not count.
The hand-written loop brings a batch to the devices in each step, like `fit`.
"""

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import contenders
from _report import emit, parser

STEPS = 400


def main():
    """Measure and print."""
    args = parser(__doc__, rounds=11).parse_args()

    import tfdist_jax

    tfdist_jax.use_cpu_devices(args.devices)
    import tfdist_jax.compat.tensorflow as tf

    runs = {
        "hand-written": contenders.hand_written("tiny", feed=True)[0],
        "fit": contenders.fit(tf, "tiny")[0],
        "fit, steps_per_execution=20": contenders.fit(tf, "tiny", steps_per_execution=20)[0],
    }
    for run in runs.values():
        run(40)
    times = {name: [] for name in runs}
    for _ in range(args.rounds):
        for name, run in runs.items():
            started = time.thread_time()
            run(STEPS)
            times[name].append((time.thread_time() - started) / STEPS * 1e6)
    import jax
    import keras

    medians = {name: statistics.median(values) for name, values in times.items()}
    result = {
        "devices": args.devices,
        "steps_per_round": STEPS,
        "versions": {"jax": jax.__version__, "keras": keras.__version__},
        "main_thread_us_per_step": medians,
        "more_than_hand_written_us": {name: value - medians["hand-written"] for name, value in medians.items()},
    }
    emit(result, args.out)


if __name__ == "__main__":
    main()
