"""Functions of datasets that are made in loops: their names mean what they meant when the dataset was made."""

import os
import tempfile

import tensorflow as tf
from _facts import show

folder = tempfile.mkdtemp()
paths = []
for name in ("a", "b"):
    paths.append(os.path.join(folder, name))
    with open(paths[-1], "w") as file:
        file.write(f"{name} 1\n{name} 2\n")


def label(line, number):
    return line, tf.constant(number)


parts = []
for i, path in enumerate(paths):
    parts.append(tf.data.TextLineDataset(path).map(lambda line: label(line, i)))
show("of the loop's number", list(parts[0].concatenate(parts[1]).as_numpy_iterator()))


def make_all():
    made = []
    for factor in (2, 3):
        made.append(tf.data.Dataset.from_generator(lambda: iter([1, 2]), tf.int32).map(lambda x: x * factor))
        made.append(tf.data.Dataset.from_tensor_slices(["1", "22"]).filter(lambda x: tf.strings.length(x) < factor))
        made.append(tf.data.Dataset.range(2).flat_map(lambda x: tf.data.Dataset.range(factor)))
    factor = 100
    return made


for number, dataset in enumerate(make_all()):
    show(f"of a function's {number}", list(dataset.as_numpy_iterator()))

scale = 2
scaled = tf.data.Dataset.from_tensor_slices(["a", "bb"]).map(lambda text: tf.strings.length(text) * scale)
show("with a name of the module", list(scaled.as_numpy_iterator()))
scale = 3
show("bound anew", list(scaled.as_numpy_iterator()))
weights = [1]
listed = tf.data.Dataset.from_tensor_slices(["a"]).map(lambda text: tf.strings.length(text) * len(weights))
weights = [1, 2, 3]
show("another list", list(listed.as_numpy_iterator()))
