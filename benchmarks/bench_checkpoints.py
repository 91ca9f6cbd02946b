"""GB/s at which TensorFlow's checkpoint files are read and written: this project and TensorFlow, interleaved, as JSON.

`python benchmarks/bench_checkpoints.py [name ...] [--rounds 7] [--seconds 2] [--out benchmarks/results/checkpoints.json]`

500 MB in 50 variables, as TensorFlow or this project writes them, in the system's cache. Each contender runs in a process of its own, in
turn. Reading compares checksums in both; this project syncs what it writes to the disk, which TensorFlow does not.
"""

# pyright: basic
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from _report import describe_machine, emit, parser
from _turns import command_of, find_quartiles, parse_names, serve, take_turns

VARIABLES, ROWS, COLUMNS = 50, 1250, 2000
GIGABYTES = VARIABLES * ROWS * COLUMNS * 4 / 1e9
CONTENDERS = ("tfdist_jax", "tensorflow")
NAMES = ("read", "restore", "write")


def make_contender(contender, name, folder):
    """Return what reads or writes a checkpoint so many times."""
    if contender == "tensorflow":
        import tensorflow as tf
    else:
        import tfdist_jax

        os.environ["TFDIST_CHECKPOINT_FORMAT"] = "tensorflow"
        tfdist_jax.use_cpu_devices(1)
        import tfdist_jax.compat.tensorflow as tf
    checkpoint = tf.train.Checkpoint(variables=[tf.Variable(tf.zeros([ROWS, COLUMNS])) for _ in range(VARIABLES)])
    saved = str(folder / "saved")

    def read():
        reader = tf.train.load_checkpoint(saved)
        return [reader.get_tensor(f"variables/{i}/.ATTRIBUTES/VARIABLE_VALUE") for i in range(VARIABLES)]

    take = {
        "read": read,
        "restore": lambda: checkpoint.read(saved).assert_consumed(),
        "write": lambda: checkpoint.write(str(folder / contender)),
    }[name]

    def run(steps):
        for _ in range(steps):
            take()

    return run


def measure(name, folder, args):
    """Return GB/s of each contender, and how many times as fast this project is."""
    commands = {
        contender: command_of(__file__, name, "--worker", contender, "--folder", folder) for contender in CONTENDERS
    }
    times = take_turns(commands, args.rounds, args.seconds)
    ratios = [theirs / ours for ours, theirs in zip(times["tfdist_jax"], times["tensorflow"], strict=True)]
    return {
        "gigabytes_per_second": {
            contender: round(GIGABYTES / statistics.median(times[contender]), 3) for contender in CONTENDERS
        },
        "times_as_fast_as_tensorflow": find_quartiles(ratios),
    }


def write_saved(folder):
    """Write the files that are read, in TensorFlow's format."""
    import numpy as np

    os.environ["TFDIST_CHECKPOINT_FORMAT"] = "tensorflow"
    import tfdist_jax.compat.tensorflow as tf

    random = np.random.default_rng(0)
    variables = [tf.Variable(random.random((ROWS, COLUMNS), "f4")) for _ in range(VARIABLES)]
    tf.train.Checkpoint(variables=variables).write(str(folder / "saved"))


def main():
    """Measure and print."""
    options = parser(__doc__, rounds=7)
    options.add_argument("--seconds", type=float, default=2.0, help="about how long a contender works in a round")
    args = parse_names(options, NAMES, CONTENDERS)
    if args.worker:
        serve(lambda: make_contender(args.worker, args.names[0], args.folder))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_saved(Path(folder))
        found = {name: measure(name, folder, args) for name in args.names or NAMES}
    emit(
        {"gigabytes": GIGABYTES, "variables": VARIABLES, **describe_machine("jax", "tensorflow"), "found": found},
        args.out,
    )


if __name__ == "__main__":
    main()
