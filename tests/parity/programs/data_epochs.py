"""Epochs: without elements, cached exactly to their end, with functions that change variables, with iterators in functions."""

import numpy as np
import tensorflow as tf
from _facts import show

Dataset = tf.data.Dataset


def epochs(sizes, make=lambda dataset: dataset):
    """A dataset whose epochs have so many elements, one after the other."""
    left = iter(sizes)
    generate = lambda: iter(range(next(left, 0)))
    return make(Dataset.from_generator(generate, output_signature=tf.TensorSpec((), tf.int64)))


def values(dataset):
    return [int(x) for x in dataset]


sizes = [0, 0, 1, 0, 2, 0]
show("repeat over empty epochs", values(epochs(sizes).repeat(6)))
show("the first few", values(epochs(sizes).repeat(6).take(2)))
show("shuffled", sorted(values(epochs(sizes, lambda d: d.shuffle(10)).repeat(6))))
show("for ever ends where an epoch is empty", values(epochs([2, 1, 0, 3]).repeat()))
show("repeat(2) of nothing", values(Dataset.range(0).repeat(2)))
show("repeat of a repeat", values(epochs([1, 0, 2, 1]).repeat(2).repeat(2)))

cached = Dataset.range(10).shuffle(10).cache()
iterator = iter(cached)
read = [int(next(iterator)) for _ in range(10)]
show("cached when the last element has been read", read == values(cached))
cached = Dataset.range(10).filter(lambda x: x > -1).shuffle(10).cache()
show("cached at the end", values(cached) == values(cached))

counter = tf.Variable(0)


def count(x):
    counter.assign_add(1)
    return x


@tf.function
def single():
    return Dataset.range(1).map(count).get_single_element()


@tf.function
def total():
    return Dataset.range(3).map(count).reduce(np.int64(0), lambda a, b: a + b)


show("single element in a function", [single(), single(), counter])
show("reduce in a function", [total(), counter])
show("eagerly", [values(Dataset.range(3).map(count)), counter])
captured = iter(Dataset.range(4))
show("iterator in map", values(Dataset.range(2).map(lambda x: x + next(captured))))
