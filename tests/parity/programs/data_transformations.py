"""Datasets made of other datasets' elements: what they hold, in which order, how many, and of which type."""

import numpy as np
import tensorflow as tf
from _facts import error, show

Dataset = tf.data.Dataset


def plain(value):
    """An element as Python values."""
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def facts(label, dataset, take=-1):
    elements = [plain(e) for e in dataset.take(take).as_numpy_iterator()]
    show(label, [elements, int(dataset.cardinality()), str(dataset.element_spec)])


numbers = Dataset.range(5)
facts("flat_map", Dataset.range(3).flat_map(lambda x: Dataset.range(x + 1)))
facts("flat_map of tuples", Dataset.range(2).flat_map(lambda x: Dataset.from_tensors((x, 2 * x)).repeat(2)))
facts("flat_map to slices", Dataset.from_tensor_slices([[1, 2], [3, 4]]).flat_map(Dataset.from_tensor_slices))
facts("interleave", Dataset.range(1, 6).interleave(lambda x: Dataset.from_tensors(x).repeat(6), 2, 4))
uneven = lambda x: Dataset.from_tensors(x).repeat(x)
facts("interleave of different lengths", Dataset.range(5).interleave(uneven, cycle_length=3))
facts("interleave, parallel", numbers.interleave(uneven, cycle_length=2, block_length=2, num_parallel_calls=2))
facts("interleave of nothing", Dataset.range(0).interleave(uneven, cycle_length=2))
facts("scan", numbers.scan(np.int64(0), lambda s, x: (s + x, s + x)))
facts("scan with structure", numbers.scan((0, 1.0), lambda s, x: ((s[0] + 1, s[1] * 2), {"n": s[0], "x": x})))
facts("take_while", numbers.take_while(lambda x: x < 3))
facts("unique", Dataset.from_tensor_slices([1, 37, 2, 37, 2, 1]).unique())
facts("unique texts", Dataset.from_tensor_slices(["a", "b", "a"]).unique())
facts("enumerate", Dataset.from_tensor_slices([8, 9]).enumerate(start=5))
facts("enumerate without end", numbers.repeat().enumerate(), 6)
facts("counter", Dataset.counter(start=10, step=-2), 3)
facts("counter of floats", Dataset.counter(dtype=tf.float32), 2)
facts("concatenate", Dataset.range(2).batch(2).concatenate(Dataset.range(3).batch(3)))
facts("concatenate open sizes", Dataset.from_tensors([1, 2]).concatenate(Dataset.from_tensors([3])))
facts("zip", Dataset.zip(Dataset.range(2), {"a": Dataset.range(1, 4)}))
facts("map to a dict", numbers.map(lambda x: {"x": x, "y": (x, tf.cast(x, tf.float32))}), 2)
facts("map batches", Dataset.range(7).batch(4).map(lambda x: tf.reduce_mean(tf.cast(x, tf.float32))))
facts("map batches to batches", Dataset.range(5).batch(3).map(lambda x: (x * 2, tf.reshape(x, [-1, 1]))))
facts("map of fixed batches", Dataset.range(6).batch(3, drop_remainder=True).map(lambda x: x[1:]))
facts("map to a list", numbers.map(lambda x: [x, x + 1]), 2)
facts("filter without end", numbers.repeat().filter(lambda x: x > 3), 3)
facts("filter of tuples", Dataset.zip(numbers, numbers).filter(lambda x, y: x + y > 5))
facts("rebatch", Dataset.range(7).batch(3).rebatch(2))
facts("rebatch in turn", Dataset.range(7).batch(3).rebatch([1, 2]))
facts("rebatch, dropping", Dataset.range(7).batch(3).rebatch(2, drop_remainder=True))
facts("repeat zero times", numbers.repeat(0))
facts("skip more than all", numbers.skip(9))
facts("shard of batches", Dataset.range(7).batch(2).shard(2, 1))
facts("apply", numbers.apply(lambda d: d.filter(lambda x: x < 3)))
facts("ranges", Dataset.range(5, 1, -2))
facts("empty batches", Dataset.range(0).batch(3))
facts("cache", numbers.map(lambda x: x + 1).cache().repeat(2).take(7))
show("reduce", numbers.reduce(np.int64(0), lambda s, x: s + x))
show("reduce with structure", numbers.reduce((0, 0.0), lambda s, x: (s[0] + 1, s[1] + tf.cast(x, tf.float32))))
show("single element", Dataset.range(10).batch(10).get_single_element())
error("more than one element", numbers.get_single_element)
error("no element", Dataset.range(0).get_single_element)
error("concatenate other types", lambda: numbers.concatenate(Dataset.from_tensors(1.0)).element_spec)
error("shard out of range", lambda: list(numbers.shard(2, 2)))
error("batch of nothing", lambda: list(numbers.batch(0)))
error(
    "batch of different shapes",
    lambda: list(Dataset.range(3).flat_map(lambda n: Dataset.from_tensors(tf.zeros([n]))).batch(2)),
)
error("slices of different lengths", lambda: Dataset.from_tensor_slices(([1, 2], [1])))
error("slices of a scalar", lambda: Dataset.from_tensor_slices(1))
error("map that is no function", lambda: numbers.map(3))
error("predicate without truth value", lambda: list(numbers.filter(lambda x: x + 1)))
