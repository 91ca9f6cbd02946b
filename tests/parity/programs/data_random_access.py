"""`tf.data.experimental.at`: elements by number, of which datasets, and its errors."""

import numpy as np
import tensorflow as tf
from _facts import error, show

Dataset = tf.data.Dataset
at = tf.data.experimental.at
numbers = Dataset.range(5)


def entries(dataset):
    """All elements, then the class of the error behind the last one."""
    found = []
    while True:
        try:
            found.append(at(dataset, len(found)))
        except Exception as raised:
            return [*found, type(raised).__name__]


show("range", entries(numbers))
show("range with a step", entries(Dataset.range(10, 0, -3)))
show("from_tensors", entries(Dataset.from_tensors((1, 2.0))))
show("from_tensor_slices", entries(Dataset.from_tensor_slices(([1, 2], {"a": [3.0, 4.0]}))))
show("texts", [text.numpy() for text in entries(Dataset.from_tensor_slices(["a", "b"]))[:-1]])
show("map", entries(numbers.map(lambda x: x * 2)))
show("map of texts", [text.numpy() for text in entries(Dataset.from_tensor_slices(["a"]).map(lambda x: x + "b"))[:-1]])
show("batch", entries(numbers.batch(2)))
show("batch without remainder", entries(numbers.batch(2, drop_remainder=True)))
show("take", entries(numbers.take(3)))
show("take all", entries(numbers.take(-1)))
show("skip", entries(numbers.skip(2)))
show("skip all", entries(numbers.skip(-1)))
show("concatenate", entries(numbers.concatenate(Dataset.range(7, 9))))
show("zip", entries(Dataset.zip(numbers, {"a": Dataset.range(3)})))
show("shard", entries(numbers.shard(2, 1)))
show("prefetch", entries(numbers.prefetch(1)))
show("cache", entries(numbers.cache()))
show("repeat", entries(numbers.repeat(2)))
show("repeat zero times", entries(numbers.repeat(0)))
show("nothing", entries(Dataset.range(0)))
show("options", entries(numbers.with_options(tf.data.Options())))
show("list", entries(tf.data.experimental.from_list([1, 2])))
show("several", entries(numbers.map(lambda x: x + 1).skip(1).batch(2).prefetch(1)))
shuffled = numbers.shuffle(5, seed=1)
show("shuffle holds all", sorted(int(at(shuffled, i)) for i in range(5)))
show("shuffle is the same again", [int(at(shuffled, i)) for i in range(5)] == [int(at(shuffled, i)) for i in range(5)])
counter = tf.Variable(0, dtype=tf.int64)
counted = numbers.map(lambda x: x + counter.assign_add(1))
show("map runs for each", [at(counted, i) for i in (0, 0, 3)])
show("tensor", at(numbers, tf.constant(2, tf.int64)))
error("negative number", lambda: at(numbers, -1))
error("int32 tensor", lambda: at(numbers, tf.constant(2)))
error("no number", lambda: at(numbers, 1.5))
error("without end", lambda: at(numbers.repeat(), 0))
error("filter", lambda: at(numbers.filter(lambda x: x > 1), 0))
error("map of filter", lambda: at(numbers.filter(lambda x: x > 1).map(lambda x: x), 0))
error("flat_map", lambda: at(numbers.flat_map(Dataset.from_tensors), 0))
error("scan", lambda: at(numbers.scan(np.int64(0), lambda s, x: (s + x, s)), 0))
error("error in map", lambda: at(numbers.map(lambda x: tf.debugging.check_numerics(1 / x, "m")), 0))
