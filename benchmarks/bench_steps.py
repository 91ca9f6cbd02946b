"""Time of one training step: this project, hand-written JAX, TensorFlow; interleaved, as JSON.

`python benchmarks/bench_steps.py [mlp cnn ...] [--devices 4] [--starts 1] [--rounds 7] [--seconds 0.5] [--out benchmarks/results]`

Every contender runs in a process of its own; in each round each takes steps for about the same time, in turn, so that a
change of the machine's speed meets all of them. With several starts all of it is done again with new processes, since one is up to a
tenth faster than the next. Ratios are taken round by round, to the faster form of hand-written JAX. `draw_steps.py` makes the README's
table and picture of the files.
"""

import os
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import contenders
import models
from _report import describe_machine, emit, parser
from _turns import command_of, find_quartiles, serve, take_turns

MODELS = ("mlp", "cnn", "dcgan", "resnet", "resnet18", "resnet50", "mobilenet", "lstm", "transformer")
NAMES = (
    "hand-written",
    "hand-written, not donated",
    "hand-written, fed",
    "custom loop",
    "fit",
    "tensorflow loop",
    "tensorflow fit",
)


_JAX_AS_IT_IS = {"TFDIST_CPU_KERNELS": "off", "TFDIST_CPU_MALLOC": "off", "NPROC": str(os.cpu_count())}


def make_contender(name, model, devices):
    """Return what takes steps."""
    if name.startswith("tensorflow"):
        os.environ["KERAS_BACKEND"] = "tensorflow"
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * devices)
    else:
        if name.startswith("hand-written"):
            os.environ |= _JAX_AS_IT_IS
        import tfdist_jax

        tfdist_jax.use_cpu_devices(devices)
        import tfdist_jax.compat.tensorflow as tf
    if name.startswith("hand-written"):
        run, _ = contenders.hand_written(model, feed=name.endswith("fed"), donate=not name.endswith("not donated"))
    else:
        run, _ = (contenders.custom_loop if name.endswith("loop") else contenders.fit)(tf, model)
    return run


def measure(model, args):
    """Return each contender's seconds per step, round by round, with one process for each."""
    names = [name for name in NAMES if not (args.without_tensorflow and name.startswith("tensorflow"))]
    commands = {name: command_of(__file__, model, "--worker", name, "--devices", args.devices) for name in names}
    return take_turns(commands, args.rounds, args.seconds)


def summarize(model, times, args):
    """Return medians, quartiles and ratios."""
    faster = min(("hand-written", "hand-written, not donated"), key=lambda name: statistics.median(times[name]))
    base = times[faster]
    result = {
        "model": model,
        "devices": args.devices,
        "starts": args.starts,
        "rounds": args.rounds,
        **describe_machine("jax", "keras", *(() if args.without_tensorflow else ("tensorflow",))),
        "ms_per_step": {name: find_quartiles([1000 * t for t in values]) for name, values in times.items()},
        "faster_hand_written": faster,
        "speed_of_hand_written": {
            name: find_quartiles([b / t for b, t in zip(base, values, strict=True)]) for name, values in times.items()
        },
    }
    for ours, theirs in (("custom loop", "tensorflow loop"), ("fit", "tensorflow fit")):
        if theirs in times:
            ratios = [t / o for o, t in zip(times[ours], times[theirs], strict=True)]
            result.setdefault("times_faster_than_tensorflow", {})[ours] = find_quartiles(ratios)
    return result


def main():
    """Measure and print."""
    options = parser(__doc__, rounds=7)
    options.add_argument("models", nargs="*", help=f"{', '.join(MODELS)} if none is named")
    options.add_argument("--starts", type=int, default=1, help="how often all processes are started")
    options.add_argument("--seconds", type=float, default=0.5, help="about how long a contender takes steps in a round")
    options.add_argument("--without-tensorflow", action="store_true")
    options.add_argument("--worker")
    args = options.parse_args()
    if unknown := set(args.models) - set(models.MODELS):
        options.error(f"There is no model {', '.join(sorted(unknown))}; there are {', '.join(models.MODELS)}.")
    if args.worker:
        serve(lambda: make_contender(args.worker, args.models[0], args.devices))
        return
    for model in args.models or MODELS:
        measured = [measure(model, args) for _ in range(args.starts)]
        times = {name: [t for times in measured for t in times[name]] for name in measured[0]}
        emit(summarize(model, times, args), args.out and args.out / f"steps_{model}_{args.devices}.json")


if __name__ == "__main__":
    main()
