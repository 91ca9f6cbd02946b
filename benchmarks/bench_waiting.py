"""The share of a training loop's time that it waits for data: JPEG files in TFRecords, here and in TensorFlow, as JSON.

`python benchmarks/bench_waiting.py [--rounds 7] [--epochs 2] [--out benchmarks/results/waiting.json]`

The digits of scikit-learn, enlarged and written as JPEG files, are read, decoded, shuffled and batched while a small convolutional
network trains on them, one step after the other. Each contender runs in a process of its own, and trains in turn with the other. Waiting is
the time within `next(iterator)`.
"""

# pyright: basic
import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from _report import describe_machine, emit, parser
from _turns import command_of

SIZE, BATCH, CONTENDERS = 32, 64, ("tfdist_jax", "tensorflow")


def write_digits(path):
    """Write the digits as examples with JPEG files; return how many there are."""
    from PIL import Image
    from sklearn.datasets import load_digits

    from tfdist_jax.compat import tensorflow as tf

    images, labels = load_digits(return_X_y=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for pixels, label in zip(images.reshape(-1, 8, 8), labels, strict=True):
            file = io.BytesIO()
            Image.fromarray((pixels * 15).astype("u1")).convert("RGB").resize((SIZE, SIZE)).save(file, "JPEG")
            feature = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[file.getvalue()])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(label)])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    return len(labels)


def make_dataset(tf, path):
    """Return the batches; the same program under both."""
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}

    def decode(record):
        parsed = tf.io.parse_single_example(record, features)
        image = tf.io.decode_jpeg(parsed["image"], 3)
        image.set_shape([SIZE, SIZE, 3])
        return tf.image.convert_image_dtype(image, tf.float32), parsed["label"]

    records = tf.data.TFRecordDataset(str(path)).shuffle(512)
    return records.map(decode, tf.data.AUTOTUNE).batch(BATCH, drop_remainder=True).prefetch(2)


def make_step(tf):
    """Return a training step."""
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input((SIZE, SIZE, 3)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = tf.keras.optimizers.Adam()

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))
        return value

    return step


def train(step, dataset, epochs):
    """Train; return the seconds in all and those of waiting, and the last loss."""
    waited, began = 0.0, time.perf_counter()
    for _ in range(epochs):
        iterator = iter(dataset)
        while True:
            asked = time.perf_counter()
            batch = next(iterator, None)
            waited += time.perf_counter() - asked
            if batch is None:
                break
            value = float(step(*batch))
    return time.perf_counter() - began, waited, value


def work(contender, path):
    """Train as many epochs as each line on standard input says, and report."""
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if contender == "tensorflow":
        os.environ["KERAS_BACKEND"] = "tensorflow"
        import tensorflow as tf
    else:
        import tfdist_jax

        tfdist_jax.use_cpu_devices(1)
        import tfdist_jax.compat.tensorflow as tf
    tf.random.set_seed(0)
    step, dataset = make_step(tf), make_dataset(tf, path)
    train(step, dataset, 1)
    for line in sys.stdin:
        print(json.dumps(train(step, dataset, int(line))), file=report, flush=True)


def ask(process, epochs):
    """Let a contender train, and return what it reports."""
    process.stdin.write(f"{epochs}\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("A contender has ended; run the script with --worker to see why.")
    return json.loads(line)


def measure(path, count, args):
    """Return images per second and shares of waiting."""
    start = lambda name: subprocess.Popen(
        command_of(__file__, "--worker", name, "--file", path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    workers = {name: start(name) for name in CONTENDERS}
    reports = {name: [] for name in CONTENDERS}
    try:
        for _ in range(args.rounds):
            for name, process in workers.items():
                reports[name].append(ask(process, args.epochs))
    finally:
        for process in workers.values():
            process.kill()
            process.wait()
    images = count // BATCH * BATCH * args.epochs
    return {
        name: {
            "images_per_second": round(images / statistics.median(seconds for seconds, _, _ in told)),
            "share_of_time_waiting": statistics.median(waited / seconds for seconds, waited, _ in told),
            "last_loss": told[-1][2],
        }
        for name, told in reports.items()
    }


def main():
    """Measure and print."""
    options: argparse.ArgumentParser = parser(__doc__, rounds=7)
    options.add_argument("--epochs", type=int, default=2, help="how often a contender goes over the images in a round")
    options.add_argument("--worker", choices=CONTENDERS)
    options.add_argument("--file", type=Path)
    args = options.parse_args()
    if args.worker:
        work(args.worker, args.file)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.tfrecord"
        found = measure(path, write_digits(path), args)
    emit({"batch": BATCH, "image": [SIZE, SIZE, 3], **describe_machine("jax", "tensorflow"), "found": found}, args.out)


if __name__ == "__main__":
    main()
