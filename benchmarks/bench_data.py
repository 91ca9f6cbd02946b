"""Images per second that a dataset maps and batches: this project and TensorFlow, interleaved, as JSON.

`python benchmarks/bench_data.py [--rounds 9] [--seconds 1] [--without-tensorflow] [--out benchmarks/results/data.json]`

The data are MNIST's: 60,000 images of 28 x 28 bytes, made up, in memory. Each contender runs in a process of its own; in
each round each makes passes over the same dataset for as long, in turn. What is counted is what a training loop gets:
NumPy batches for `fit`, tensors for a loop of one's own. `python, each image` does the work of `map + batch` with
NumPy, image by image. Processor time, of all threads together and of the main one alone, does not depend on what else
the machine does.
"""

import functools
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from _report import describe_machine, emit, parser

IMAGES, ROWS = 60_000, 128


def arrays():
    """Images and labels."""
    import numpy as np

    random = np.random.RandomState(0)
    return random.randint(0, 256, (IMAGES, 28, 28, 1)).astype("u1"), random.randint(0, 10, IMAGES)


def datasets(tf):
    """The datasets by what they do; programs of TensorFlow, run under this project too."""
    scaled = lambda image, label: (tf.cast(image, tf.float32) / 255.0, label)

    def augmented(image, label):
        image = tf.image.random_flip_left_right(tf.cast(image, tf.float32) / 255.0)
        return tf.image.random_brightness(image, 0.1), label

    data = tf.data.Dataset.from_tensor_slices(arrays())
    auto = tf.data.AUTOTUNE
    return {
        "batch": data.batch(ROWS),
        "shuffle + batch": data.shuffle(IMAGES).batch(ROWS),
        "map + batch": data.map(scaled, auto).batch(ROWS),
        "batch + map": data.batch(ROWS).map(scaled, auto),
        "shuffle + map + batch + prefetch": data.shuffle(IMAGES).map(scaled, auto).batch(ROWS).prefetch(auto),
        "random augmentation + batch": data.map(augmented, auto).batch(ROWS),
    }


def each_image(images, labels):
    """The work of `map + batch`, image by image in Python."""
    import numpy as np

    for start in range(0, IMAGES, ROWS):
        rows = range(start, min(start + ROWS, IMAGES))
        yield np.stack([images[i].astype("f4") / np.float32(255) for i in rows]), np.stack([labels[i] for i in rows])


def passes(tf) -> dict[str, Any]:
    """Make an iteration over batches, by what it is."""
    named = {}
    for name, dataset in datasets(tf).items():
        named[f"{name}, numpy"] = dataset.as_numpy_iterator
        named[f"{name}, tensors"] = lambda dataset=dataset: iter(dataset)
    return named


def worker(name, seconds):
    """Build a contender; on each line of standard input go over its datasets, and report what was measured."""
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Libraries print what they like; only numbers go to the reports.
    if name == "tensorflow":
        import tensorflow as tf

        runs = passes(tf)
    else:
        import tfdist_jax

        tfdist_jax.use_cpu_devices(1)
        import tfdist_jax.compat.tensorflow as tf

        runs = {**passes(tf), "python, each image": functools.partial(each_image, *arrays())}
    for run in runs.values():
        _measured(run, 0.2)
    print(*runs, sep=";", file=report, flush=True)
    for line in sys.stdin:
        print(*_measured(runs[line.strip()], seconds), file=report, flush=True)


def _measured(run, seconds):
    """Return images per second, images per second of processor time, and the main thread's microseconds for a batch."""
    images = batches = 0
    started, all_threads, own = time.perf_counter(), time.process_time(), time.thread_time()
    while time.perf_counter() - started < seconds:
        for _, labels in run():
            images, batches = images + len(labels), batches + 1
            if time.perf_counter() - started > seconds:
                break
    own, all_threads = time.thread_time() - own, time.process_time() - all_threads
    return images / (time.perf_counter() - started), images / all_threads, own / batches * 1e6


def measure(args):
    """Return the rounds of each contender, by dataset."""
    workers = {name: _start(name, args) for name in (*["tensorflow"] * (not args.without_tensorflow), "tfdist_jax")}
    found: dict[str, dict[str, list[list[float]]]] = {}
    try:
        names = {contender: process.stdout.readline().strip().split(";") for contender, process in workers.items()}
        for _ in range(args.rounds):
            for name in names["tfdist_jax"]:
                for contender, process in workers.items():
                    if name in names[contender]:
                        process.stdin.write(f"{name}\n")
                        process.stdin.flush()
                        numbers = [float(word) for word in process.stdout.readline().split()]
                        found.setdefault(name, {}).setdefault(contender, []).append(numbers)
    finally:
        for process in workers.values():
            process.stdin.close()
            process.wait()
    return found


def _start(name, args) -> Any:
    command = [sys.executable, __file__, "--worker", name, "--seconds", str(args.seconds)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def _summary(rounds):
    speeds, of_processor, own = zip(*rounds, strict=True)
    low, middle, high = statistics.quantiles(speeds, n=4)
    return {
        "images_per_s": {"median": round(middle), "quartiles": [round(low), round(high)], "best": round(max(speeds))},
        "images_per_processor_s": round(statistics.median(of_processor)),
        "main_thread_us_per_batch": round(statistics.median(own), 1),
    }


def main():
    """Measure and print; or, as a worker, take part."""
    options = parser(__doc__, rounds=9)
    options.add_argument("--seconds", type=float, default=1.0, help="how long each contender runs in a round")
    options.add_argument("--without-tensorflow", action="store_true")
    options.add_argument("--worker", help="measure one contender, for the process that asks")
    args = options.parse_args()
    if args.worker:
        worker(args.worker, args.seconds)
        return
    found = measure(args)

    result = {
        "images": [IMAGES, 28, 28, 1],
        "rows": ROWS,
        "rounds": args.rounds,
        **describe_machine("jax"),
        "found": {
            name: {contender: _summary(rounds) for contender, rounds in contenders.items()}
            for name, contenders in found.items()
        },
    }
    emit(result, args.out)


if __name__ == "__main__":
    main()
