"""Rows per second that datasets read from files and parse: this project, TensorFlow and Grain, interleaved, as JSON.

`python benchmarks/bench_files.py [name ...] [--rounds 7] [--seconds 1] [--out benchmarks/results/files.json]`

Files are made up and read from the system's cache. Each contender runs in a process of its own and makes passes over a file, in turn. What
is counted is what `fit` gets: NumPy batches of 256 rows. Grain reads records and calls Python functions of them; it has no files of lines.
"""

# pyright: basic
import io
import os
import random
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from _report import describe_machine, emit, parser
from _turns import command_of, find_quartiles, parse_names, serve, take_turns

ROWS, IMAGES, BATCH, COLUMNS = 16384, 1024, 256, 20
WORDS, TEXT_WORDS = [f"word{i}" for i in range(5000)], 12
CONTENDERS = ("tfdist_jax", "tensorflow", "grain")


def write_files(folder):
    """Write a file of each kind."""
    from tfdist_jax.compat import tensorflow as tf

    numbers = random.Random(0)

    def write(name, count, make):
        with tf.io.TFRecordWriter(str(folder / name)) as writer:
            for _ in range(count):
                features = tf.train.Features(feature=make())
                writer.write(tf.train.Example(features=features).SerializeToString())

    def floats():
        return {f"f{i}": _feature(tf, "float", [numbers.random()]) for i in range(COLUMNS)}

    def integers():
        return {f"f{i}": _feature(tf, "int64", [int(10 ** numbers.uniform(0, 9))]) for i in range(COLUMNS)}

    def image():
        return {
            "image": _feature(tf, "bytes", [_jpeg(numbers)]),
            "label": _feature(tf, "int64", [numbers.randrange(10)]),
        }

    write("floats", ROWS, floats)
    write("integers", ROWS, integers)
    write("images", IMAGES, image)
    lines = [",".join(f"{numbers.uniform(-9, 9):.4f}" for _ in range(10)) for _ in range(ROWS)]
    (folder / "csv").write_text("\n".join(lines))
    (folder / "texts").write_text("\n".join(" ".join(numbers.choices(WORDS, k=TEXT_WORDS)) for _ in range(ROWS)))


def _feature(tf, kind, values):
    message = {"float": tf.train.FloatList, "int64": tf.train.Int64List, "bytes": tf.train.BytesList}[kind]
    return tf.train.Feature(**{f"{kind}_list": message(value=values)})


def _jpeg(numbers):
    from PIL import Image

    file = io.BytesIO()
    Image.frombytes("RGB", (64, 64), numbers.randbytes(64 * 64 * 3)).save(file, "JPEG")
    return file.getvalue()


def datasets(tf, folder):
    """Return the datasets by what they do, and how many rows each has; the same programs under both."""
    path = lambda name: str(folder / name)
    dense = lambda kind: {f"f{i}": tf.io.FixedLenFeature([], kind) for i in range(COLUMNS)}
    auto = tf.data.AUTOTUNE
    picture = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}

    def decode(record):
        parsed = tf.io.parse_single_example(record, picture)
        return tf.image.convert_image_dtype(tf.io.decode_jpeg(parsed["image"], 3), tf.float32), parsed["label"]

    def parse(kind):
        return lambda records: tf.io.parse_example(records, dense(kind))

    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(WORDS[::2], tf.range(len(WORDS[::2]), dtype=tf.int64)), -1
    )

    def look_up(texts):
        return table.lookup(tf.strings.split(texts, " ").to_tensor("", shape=[None, TEXT_WORDS]))

    floats, lines = tf.data.TFRecordDataset(path("floats")), tf.data.TextLineDataset(path("csv"))
    integers = tf.data.TFRecordDataset(path("integers"))
    columns = [tf.constant([], tf.float32)] * 10
    return {
        "records": (floats.batch(BATCH), ROWS),
        "lines": (lines.batch(BATCH), ROWS),
        "20 floats, parse_example": (floats.batch(BATCH).map(parse(tf.float32), auto), ROWS),
        "20 integers, parse_example": (integers.batch(BATCH).map(parse(tf.int64), auto), ROWS),
        "20 floats, parse_single_example": (
            floats.map(lambda record: tf.io.parse_single_example(record, dense(tf.float32)), auto).batch(BATCH),
            ROWS,
        ),
        "JPEG": (tf.data.TFRecordDataset(path("images")).map(decode, auto).batch(BATCH), IMAGES),
        "decode_csv": (lines.batch(BATCH).map(lambda text: tf.stack(tf.io.decode_csv(text, columns)), auto), ROWS),
        "split and lookup": (tf.data.TextLineDataset(path("texts")).batch(BATCH).map(look_up, auto), ROWS),
        "CsvDataset": (tf.data.experimental.CsvDataset(path("csv"), [tf.float32] * 10).batch(BATCH), ROWS),
    }


def grain_datasets(folder):
    """Return what Grain makes of the files of records."""
    import grain
    import numpy as np
    from PIL import Image

    from tfdist_jax.compat.tensorflow import train

    def read(name):
        return grain.experimental.TFRecordIterDataset(str(folder / name))

    def parse(kind):
        def function(record):
            features = train.Example.FromString(record).features.feature
            return {f"f{i}": getattr(features[f"f{i}"], f"{kind}_list").value[0] for i in range(COLUMNS)}

        return function

    def decode(record):
        features = train.Example.FromString(record).features.feature
        image = Image.open(io.BytesIO(features["image"].bytes_list.value[0])).convert("RGB")
        return np.asarray(image, np.float32) / 255, features["label"].int64_list.value[0]

    floats, integers = read("floats").map(parse("float")), read("integers").map(parse("int64"))
    return {
        "records": (read("floats").batch(BATCH, batch_fn=list), ROWS),
        "20 floats, parse_example": (floats.batch(BATCH), ROWS),
        "20 integers, parse_example": (integers.batch(BATCH), ROWS),
        "20 floats, parse_single_example": (floats.batch(BATCH), ROWS),
        "JPEG": (read("images").map(decode).batch(BATCH), IMAGES),
    }


NAMES = (
    "records",
    "lines",
    "20 floats, parse_example",
    "20 integers, parse_example",
    "20 floats, parse_single_example",
    "JPEG",
    "decode_csv",
    "split and lookup",
    "CsvDataset",
)
RECORDS = (
    "records",
    "20 floats, parse_example",
    "20 integers, parse_example",
    "20 floats, parse_single_example",
    "JPEG",
)


def make_contender(contender, name, folder):
    """Return what makes passes over a file."""
    if contender == "grain":
        dataset, _ = grain_datasets(folder)[name]

        def iterate(passes):
            for _ in range(passes):
                for _ in dataset:
                    pass

        return iterate
    if contender == "tensorflow":
        os.environ["KERAS_BACKEND"] = "tensorflow"
        import tensorflow as tf
    else:
        import tfdist_jax

        tfdist_jax.use_cpu_devices(1)
        import tfdist_jax.compat.tensorflow as tf
    dataset, _ = datasets(tf, folder)[name]

    def run(passes):
        for _ in range(passes):
            for _ in dataset.as_numpy_iterator():
                pass

    return run


def measure(name, folder, args):
    """Return rows per second of each contender, and how many times as fast this project is."""
    names = [contender for contender in CONTENDERS if contender != "grain" or name in RECORDS]
    commands = {contender: command_of(__file__, name, "--worker", contender, "--folder", folder) for contender in names}
    times = take_turns(commands, args.rounds, args.seconds)
    rows = IMAGES if name == "JPEG" else ROWS
    ratios = lambda other: [theirs / ours for ours, theirs in zip(times["tfdist_jax"], times[other], strict=True)]
    return {
        "rows_per_second": {contender: round(rows / statistics.median(times[contender])) for contender in names},
        **{f"times_as_fast_as_{other}": find_quartiles(ratios(other)) for other in names if other != "tfdist_jax"},
    }


def main():
    """Measure and print."""
    options = parser(__doc__, rounds=7)
    options.add_argument("--seconds", type=float, default=1.0, help="about how long a contender reads in a round")
    args = parse_names(options, NAMES, CONTENDERS)
    if args.worker:
        serve(lambda: make_contender(args.worker, args.names[0], args.folder))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        found = {name: measure(name, folder, args) for name in args.names or NAMES}
    emit({"rows": ROWS, "batch": BATCH, **describe_machine("jax", "tensorflow"), "found": found}, args.out)


if __name__ == "__main__":
    main()
