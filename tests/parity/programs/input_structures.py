"""Distributed datasets of every structure: specs, and how often batches are split."""

import collections

import numpy as np
import tensorflow as tf
from _facts import show

strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1", "/cpu:2"])
single = tf.distribute.MirroredStrategy(["/cpu:0"])
local = lambda value: list(strategy.experimental_local_results(value))
Dataset = tf.data.Dataset


def rows(dataset, distribute=strategy.experimental_distribute_dataset):
    """Shapes of each replica's part, step by step."""
    return [[tuple(v.shape) for v in local(tf.nest.flatten(batch)[0])] for batch in distribute(dataset)]


show("batched twice", rows(Dataset.range(14).batch(2).batch(4)))
show("batched twice, dropping inside", rows(Dataset.range(14).batch(4, drop_remainder=True).batch(2)))
show("mapped after", rows(Dataset.range(7).batch(4).map(lambda x: x * 2)))
show("repeated after", rows(Dataset.range(5).batch(4).repeat(2)))
show("batched after repeat", rows(Dataset.range(5).repeat(2).batch(4)))
show("taken after", rows(Dataset.range(20).batch(4).take(2)))
show("prefetched", rows(Dataset.range(5).batch(4).prefetch(2)))
show("shuffled batches", sorted(map(str, rows(Dataset.range(8).batch(4).shuffle(2)))))
show("concatenated", rows(Dataset.range(4).batch(4).concatenate(Dataset.range(2).batch(2))))
show("zipped", rows(Dataset.zip((Dataset.range(5).batch(4), Dataset.range(5).batch(4)))))
show("flat_map", rows(Dataset.range(2).flat_map(lambda x: Dataset.range(5).batch(4))))
show("filtered", rows(Dataset.range(9).batch(4).filter(lambda x: x[0] < 8)))
show("unbatched and batched", rows(Dataset.range(6).batch(2).unbatch().batch(5)))
show("whole arrays", rows(Dataset.from_tensors(tf.zeros([7, 2]))))
show("slices that are batches", rows(Dataset.from_tensor_slices(tf.zeros([2, 5, 2]))))
padded = Dataset.range(1, 6).map(lambda x: tf.fill([x], x)).padded_batch(4)
show("padded", [[v.numpy().tolist() for v in local(b)] for b in strategy.experimental_distribute_dataset(padded)])
show("empty", rows(Dataset.range(0).batch(4)))
show("one replica", [tuple(b.shape) for b in single.experimental_distribute_dataset(Dataset.range(5).batch(4))])

Point = collections.namedtuple("Point", "x y")
points = Dataset.from_tensor_slices(Point(np.arange(4), {"a": np.ones((4, 2), "f4")})).batch(3)
(first, second) = strategy.experimental_distribute_dataset(points)
show("named", [type(first).__name__, list(first._fields), [v.numpy().tolist() for v in local(first.x)]])
show("last", [tuple(v.shape) for v in local(second.y["a"])])


def specs(dataset, **kwargs):
    spec = strategy.experimental_distribute_dataset(dataset).element_spec
    return [str(s) for s in tf.nest.flatten(spec)]


show("spec", specs(Dataset.range(6).batch(6)))
show("spec, dropping", specs(Dataset.range(6).batch(6, drop_remainder=True)))
show("spec of names", type(strategy.experimental_distribute_dataset(points).element_spec).__name__)
show("spec of one replica", str(single.experimental_distribute_dataset(Dataset.range(6).batch(6)).element_spec))
show(
    "spec of the iterator", str(iter(strategy.experimental_distribute_dataset(Dataset.range(6).batch(6))).element_spec)
)
fn = strategy.distribute_datasets_from_function(lambda context: Dataset.range(6).batch(2))
show("spec from a function", str(fn.element_spec))
show("cardinality", int(strategy.experimental_distribute_dataset(Dataset.range(7).batch(4)).cardinality))
