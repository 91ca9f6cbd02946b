"""What digests cost when something is saved and restored: each format with and without them, in turn; as JSON.

`python benchmarks/bench_digests.py [--rounds 41] [--out benchmarks/results/digests.json]`

Random numbers are saved, which no compression makes smaller. Without digests, the same number of files and folders is put on disk.
"""

import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))
from _report import describe_machine, emit, parser

ARRAYS = 10
WIDTHS = {"40 MB": 1000, "4 KB": 10}


def formats(tf, width, folder):
    """Return `save()` and `load()` by format, of ten arrays."""
    import keras
    import numpy as np

    import tfdist_jax as td

    draw = np.random.default_rng(0).random
    variables = {f"v{i}": tf.Variable(draw((width, width), "f4")) for i in range(ARRAYS)}
    arrays = {name: variable.numpy() for name, variable in variables.items()}
    checkpoint = tf.train.Checkpoint(**variables)
    checkpointer = td.Checkpointer(folder / "native", max_to_keep=1, asynchronous=False)
    model = keras.Sequential([keras.Input((width,)), *[keras.layers.Dense(width) for _ in range(ARRAYS)]])
    weights, archive = folder / "m.weights.h5", folder / "m.keras"
    return {
        "tf.train.Checkpoint": (lambda: checkpoint.write(folder / "ckpt"), lambda: checkpoint.read(folder / "ckpt")),
        "td.Checkpointer": (lambda: checkpointer.save(1, arrays), lambda: checkpointer.restore(arrays)),
        "save_weights": (lambda: model.save_weights(weights), lambda: model.load_weights(weights)),
        "model.save": (lambda: model.save(archive), lambda: keras.models.load_model(archive)),
    }


@contextlib.contextmanager
def no_digests():
    """Save and restore without digests."""
    from tfdist_jax._checkpoint import _checkpoint, _integrity
    from tfdist_jax.compat.tensorflow.keras._saving import _saving

    about = lambda folder: folder / _integrity.ABOUT / _integrity.ABOUT_FILE
    with (
        mock.patch.object(_integrity, "write_digests", about),
        mock.patch.object(_integrity, "write_own_digests", lambda folder, process: about(folder).parent),
        mock.patch.object(_integrity, "_compare", lambda folder, choose: []),
        mock.patch.object(_integrity, "_stamps", lambda folder: None),
        mock.patch.object(_saving, "seal", _checkpoint.put_on_disk),
        mock.patch.object(_saving, "check", lambda path: False),
    ):
        yield


def measure(pair, rounds):
    """Return milliseconds of saving and loading, with and without digests."""
    from tfdist_jax._checkpoint import _integrity

    times = {}
    for i in range(rounds + 2):  # The first ones warm up.
        for kind, context in (("with", contextlib.nullcontext), ("without", no_digests)):
            with context():
                for what, do in zip(("save", "load"), pair, strict=True):
                    with mock.patch.object(_integrity, "_found", {}):  # As in a new process.
                        started = time.perf_counter()
                        do()
                        took_ms = (time.perf_counter() - started) * 1e3
                    if i > 1:
                        times.setdefault((what, kind), []).append(took_ms)
    return times


def main():
    """Measure and print."""
    args = parser(__doc__, rounds=41).parse_args()

    import tfdist_jax.compat.tensorflow as tf

    results = {}
    for size, width in WIDTHS.items():
        with tempfile.TemporaryDirectory() as folder:
            for name, pair in formats(tf, width, Path(folder)).items():
                times = measure(pair, args.rounds)
                for what in ("save", "load"):
                    medians = {kind: statistics.median(times[what, kind]) for kind in ("with", "without")}
                    ratios = [a / b for a, b in zip(times[what, "with"], times[what, "without"], strict=True)]
                    results[f"{what} {size}, {name}"] = {**medians, "ratio": statistics.median(ratios)}
    emit({"rounds": args.rounds, **describe_machine("jax"), "ms": results}, args.out)


if __name__ == "__main__":
    main()
