"""The guide to tf.data: sources, files, batches, windows, resampling, positions, and what its cells print."""

import os
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from _facts import show

os.chdir(tempfile.mkdtemp())
Dataset = tf.data.Dataset


def show_each(label, dataset, count=3):
    """Show the first elements."""
    show(
        label,
        [element if isinstance(element, dict) else tuple(tf.nest.flatten(element)) for element in dataset.take(count)],
    )


dataset = Dataset.from_tensor_slices([8, 3, 0, 8, 2, 1])
show("sum", dataset.reduce(0, lambda state, value: state + value))
sparse = Dataset.from_tensors(tf.SparseTensor(indices=[[0, 0], [1, 2]], values=[1, 2], dense_shape=[3, 4]))
print("spec", sparse.element_spec)


def count(stop):
    yield from range(stop)


counter = Dataset.from_generator(count, args=[25], output_types=tf.int32, output_shapes=())
show_each("generator", counter.repeat().batch(10), 4)


def series():
    for i in range(6):
        yield i, np.arange(i * 7 % 5, dtype=np.float32)


of_series = Dataset.from_generator(series, output_types=(tf.int32, tf.float32), output_shapes=((), (None,)))
show_each("padded series", of_series.padded_batch(4), 2)

LINES = ["survived,sex,age,class", "0,male,22.0,Third", "1,female,38.0,First", "1,female,26.0,Third", "0,male,,Second"]
Path("train.csv").write_text("\n".join(LINES) + "\n")
lines = tf.data.TextLineDataset("train.csv")
survivors = lines.skip(1).filter(lambda line: tf.not_equal(tf.strings.substr(line, 0, 1), "0"))
show("survivors", [line.numpy() for line in survivors])
batches = tf.data.experimental.make_csv_dataset("train.csv", batch_size=2, label_name="survived", shuffle=False)
for features, labels in batches.take(1):
    print(f"'survived': {labels}")
    for key, value in features.items():
        print(f"  {key!r:8s}: {value}")
types = [tf.int32, tf.string, tf.float32, tf.string]
typed = tf.data.experimental.CsvDataset("train.csv", [*types[:2], 0.5, types[3]], header=True)
show("types", [[item.numpy() for item in line] for line in typed])
Path("missing.csv").write_text("1,2,3,4\n,2,3,4\n1,,3,4\n,,,\n")
whole = tf.data.experimental.CsvDataset("missing.csv", [999, 999, 999, 999]).map(lambda *items: tf.stack(items))
show("missing", list(whole))
some = tf.data.experimental.CsvDataset("missing.csv", [999, 999], select_cols=[1, 3]).map(
    lambda *items: tf.stack(items)
)
show("selected", list(some))

for name in ("one", "two"):
    Path("texts", name).mkdir(parents=True)
    for i in range(2):
        Path("texts", name, f"{i}.txt").write_text(f"{name}{i}\nend\n")


def read(path):
    return tf.strings.split(path, os.sep)[-2], tf.io.read_file(path)


show_each("files", Dataset.list_files("texts/*/*", shuffle=False).map(read), 4)
names = [f"texts/{name}/0.txt" for name in ("one", "two")]
show(
    "interleaved",
    [x.numpy() for x in Dataset.from_tensor_slices(names).interleave(tf.data.TextLineDataset, cycle_length=2)],
)
sizes = lambda dataset: [int(tf.size(batch)) for batch in dataset]
show("epochs", [sizes(lines.repeat(3).batch(4)), sizes(lines.batch(4).repeat(3))])

filled = Dataset.range(9).map(lambda x: tf.fill([tf.cast(x, tf.int32)], x)).padded_batch(4, padded_shapes=(None,))
show_each("padded", filled, 2)
pairs = Dataset.zip((Dataset.range(20), Dataset.range(0, -20, -1)))
show_each("batches", pairs.batch(4), 2)
print("spec", pairs.batch(7, drop_remainder=True).element_spec)


@tf.py_function(Tout=tf.float32)
def turned(image):
    return np.rot90(image).copy()


show("py_function", turned(tf.constant([[1.0, 2.0], [3.0, 4.0]])))
images = Dataset.from_tensor_slices(np.arange(8, dtype=np.float32).reshape(2, 2, 2))
show_each("py_function in map", images.map(lambda x: tf.ensure_shape(turned(x), [2, 2])))


def windows_of(dataset, size, shift, stride):
    """Return windows as tensors."""
    windows = dataset.window(size, shift=shift, stride=stride)
    return windows.flat_map(lambda window: window.batch(size, drop_remainder=True))


numbers = Dataset.range(100)
show_each("windows", windows_of(numbers, 10, 5, 3))
show_each("next step", windows_of(numbers, 4, 5, 3).map(lambda batch: (batch[:-1], batch[1:])))
features = numbers.batch(10, drop_remainder=True)
labels = numbers.batch(10).skip(1).map(lambda labels: labels[:3])
show_each("labels that overlap", Dataset.zip((features, labels)), 2)
show("windows one after another", [int(x) for x in numbers.window(3, shift=1).flat_map(lambda window: window).take(7)])


def tally(counts, batch):
    is_rare = batch % 5 == 0
    counts["rare"] += tf.reduce_sum(tf.cast(is_rare, tf.int32))
    counts["common"] += tf.reduce_sum(tf.cast(tf.logical_not(is_rare), tf.int32))
    return counts


show("counts", numbers.batch(16).reduce(initial_state={"rare": 0, "common": 0}, reduce_func=tally))
rare = numbers.filter(lambda x: x % 5 == 0).repeat()
common = numbers.filter(lambda x: x % 5 != 0).repeat()
mixed = Dataset.sample_from_datasets([rare, common], [0.5, 0.5]).take(400)
show("balanced", 120 < sum(int(x) % 5 == 0 for x in mixed) < 280)
resampled = numbers.repeat(8).rejection_resample(lambda x: tf.cast(x % 5 == 0, tf.int64), [0.5, 0.5], [0.8, 0.2])
show("resampled", [len(list(resampled)) > 200, all((int(x) % 5 == 0) == int(kind) for kind, x in resampled)])

iterator = iter(Dataset.range(20))
checkpoint = tf.train.Checkpoint(step=tf.Variable(0), iterator=iterator)
manager = tf.train.CheckpointManager(checkpoint, "checkpoints", max_to_keep=3)
shown = [[int(next(iterator)) for _ in range(5)]]
manager.save()
shown.append([int(next(iterator)) for _ in range(5)])
checkpoint.restore(manager.latest_checkpoint)
show("positions", [*shown, [int(next(iterator)) for _ in range(5)]])
