"""Distributed batches of several columns: text, different lengths, scalars; datasets made for each replica."""

import numpy as np
import tensorflow as tf
from _facts import error, show

strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(4)])
traces = []


def local(value):
    return list(strategy.experimental_local_results(value))


def batches(dataset):
    return [tf.nest.map_structure(local, batch) for batch in strategy.experimental_distribute_dataset(dataset)]


def from_function(make):
    return [tf.nest.map_structure(local, batch) for batch in strategy.distribute_datasets_from_function(make)]


names = [f"n{i}" for i in range(10)]
named = tf.data.Dataset.from_tensor_slices({"x": np.arange(10.0, dtype="float32"), "name": names}).batch(4)
distributed = strategy.experimental_distribute_dataset(named)
for batch in distributed:
    show("names", local(batch["name"]))
    show("numbers", local(batch["x"]))


def total(batch):
    traces.append(1)
    return tf.reduce_sum(batch["x"])


@tf.function
def step(batch):
    return strategy.reduce("SUM", strategy.run(total, args=(batch,)), axis=None)


show("a step that does not look at the text", [step(batch) for batch in distributed])
show("uncompiled", [strategy.reduce("SUM", strategy.run(total, args=(batch,)), axis=None) for batch in distributed])


def passing(batch):
    return batch["name"], batch["x"] * 2.0


for batch in distributed:
    passed, doubled = strategy.run(passing, args=(batch,))
    show("text passed through", [local(passed), local(doubled)])


def columns():
    for n in (4, 3):
        yield np.ones(n, "float32"), np.arange(n - 1, dtype="float32")


vectors = (tf.TensorSpec([None], tf.float32), tf.TensorSpec([None], tf.float32))
lengths = tf.data.Dataset.from_generator(columns, output_signature=vectors)
for one, other in batches(lengths):
    show("columns of different lengths", [one, other])
pairs = strategy.experimental_distribute_dataset(lengths)
sums = lambda a, b: tf.reduce_sum(a) * 10.0 + tf.reduce_sum(b)
show("a step on them", [strategy.reduce("SUM", strategy.run(sums, args=pair), axis=None) for pair in pairs])
show("rows of vectors", batches(tf.data.Dataset.from_tensor_slices(np.eye(2, dtype="float32"))))
show("no batch", batches(tf.data.Dataset.range(0).batch(4)))
show(
    "types", [x[0] for x in batches(tf.data.Dataset.from_tensor_slices(([True] * 4, np.ones(4), [1] * 4)).batch(4))[0]]
)

show("made for replicas", from_function(lambda context: tf.data.Dataset.range(10).batch(3)))
show("scalars for replicas", from_function(lambda context: tf.data.Dataset.range(6)))
show("text for replicas", from_function(lambda context: tf.data.Dataset.from_tensor_slices(names).batch(2)))
show("lengths for replicas", from_function(lambda context: lengths))


def ends(dataset):
    """What `next` gives of the steps; then how many a function's loop takes, and what optionals give."""
    made = strategy.distribute_datasets_from_function(lambda context: dataset)
    optionals, rest, count = iter(made), [], tf.function(counted)
    while strategy.experimental_local_results((optional := optionals.get_next_as_optional()).has_value())[0]:
        rest.append(tf.nest.map_structure(local, optional.get_value()))
    return [from_function(lambda context: dataset), count(made), rest]


def counted(batches):
    count = tf.constant(0)
    for _ in batches:
        count += 1
    return count


vectors, numbers = np.arange(12.0).reshape(6, 2), [str(i) for i in range(6)]
show("dropping for replicas", ends(tf.data.Dataset.range(12).batch(2, drop_remainder=True)))
show("open sizes for replicas", ends(tf.data.Dataset.range(12).batch(2)))
show("vectors and scalars for replicas", ends(tf.data.Dataset.from_tensor_slices((vectors, numbers, np.arange(6)))))
both = tf.data.Dataset.zip((tf.data.Dataset.range(12).batch(2), tf.data.Dataset.from_tensor_slices(numbers)))
show("open sizes and texts for replicas", ends(both))
iterator = iter(strategy.distribute_datasets_from_function(lambda context: tf.data.Dataset.range(6)))
show("first", local(next(iterator)))
error("beyond the end", lambda: next(iterator))
show("after the end", iterator.get_next_as_optional().has_value())
error("no function", lambda: strategy.distribute_datasets_from_function(3))

iterator = iter(strategy.experimental_distribute_dataset(tf.data.Dataset.range(4).batch(4)))
show("next", local(next(iterator)))
error("next at the end", lambda: next(iterator))
error("get_next at the end", lambda: iterator.get_next())
error("next of a dataset", lambda: next(distributed))
