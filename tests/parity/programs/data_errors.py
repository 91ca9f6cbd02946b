"""Errors in pipelines: of which class they are, at which element, and that an iteration goes on after them."""

import numpy as np
import tensorflow as tf
from _facts import show

Dataset = tf.data.Dataset
OPTIONS = tf.data.Options()
# TensorFlow's fused operation drops all elements of a batch with an error, those behind it too.
OPTIONS.experimental_optimization.map_and_batch_fusion = False


def plain(value):
    """An element as Python values."""
    return tuple(map(plain, value)) if isinstance(value, tuple) else value.numpy().tolist()


def drain(dataset):
    iterator, found = iter(dataset.with_options(OPTIONS) if isinstance(dataset, Dataset) else dataset), []
    while True:
        try:
            found.append(plain(next(iterator)))
        except StopIteration:
            return found
        except Exception as error:
            found.append(type(error).__name__)


def checked(numbers=(0.0, np.nan, 2.0, 3.0, np.nan, 5.0)):
    return Dataset.from_tensor_slices(list(numbers)).map(lambda x: tf.debugging.check_numerics(x, "m"))


def python_errors(error, at=(1,)):
    def run(x):
        if int(x) in at:
            raise error
        return x

    return Dataset.range(4).map(lambda x: tf.py_function(run, [x], tf.int64))


def asserted(x):
    tf.debugging.assert_less(x, np.int64(2))
    return x


def ragged(*rows):
    return Dataset.from_generator(lambda: iter(rows), output_signature=tf.TensorSpec([None], tf.int32))


show("map", drain(checked()))
show("map of a map", drain(checked().map(lambda x: x + 1)))
show("assertion", drain(Dataset.range(3).map(asserted)))
for error in (ValueError("v"), TypeError("t"), KeyError("k"), NotImplementedError("n"), MemoryError("m")):
    show(f"{type(error).__name__} in Python", drain(python_errors(error)))
show("StopIteration in Python", drain(python_errors(StopIteration())))
show("shapes", drain(ragged([1], [1, 2], [3]).map(lambda x: tf.reshape(x, [1]))))
show("batch", drain(checked().batch(2)))
show("batch of different shapes", drain(ragged([1], [1, 2], [3], [4]).batch(2)))
show("padded_batch", drain(checked().padded_batch(2)))
show("batch behind shuffle", drain(checked([0.0, np.nan, 2.0, 3.0]).shuffle(1).batch(2)))
show("filter", drain(checked().filter(lambda x: x > 1)))
show("shuffle", drain(checked().shuffle(1)))
show("prefetch", drain(checked().prefetch(2)))
show("parallel", drain(checked()))
show("cache", drain(checked().cache().repeat(2)))
show("cache that ends with errors", drain(checked([0.0, np.nan]).cache().enumerate().repeat(2)))
show("errors alone, for ever", drain(checked([np.nan, np.nan]).repeat()))
show("errors alone, for ever, left out", drain(checked([np.nan, np.nan]).repeat().ignore_errors()))
show("zip", drain(Dataset.zip(Dataset.range(6), checked(), Dataset.range(6))))
show("concatenate", drain(checked().concatenate(checked())))
show("flat_map", drain(checked().flat_map(Dataset.from_tensors)))
show("flat_map to errors", drain(Dataset.range(2).flat_map(lambda _: checked())))
show("interleave", drain(checked().interleave(Dataset.from_tensors, cycle_length=2)))
show("window", drain(checked().window(2).flat_map(lambda w: w.batch(2))))
show("unbatch", drain(checked().batch(2).unbatch()))
show("rebatch", drain(checked().batch(2).rebatch(3)))
show("scan", drain(checked().scan(0.0, lambda s, x: (s + x, s + x))))
show("enumerate", drain(checked().enumerate()))
show("take_while", drain(checked().take_while(lambda x: x < 4)))
show("unique", drain(checked().map(lambda x: tf.cast(x, tf.int32)).unique()))
odd = lambda x: tf.cast(x, tf.int64) % 2
show("group_by_window", drain(checked().group_by_window(odd, lambda key, window: window.batch(9), 2)))
numbers = Dataset.from_tensor_slices(np.int64([0, 0, 1, 0, 0, 0, 0]))
show("choose", drain(Dataset.choose_from_datasets([checked(), Dataset.from_tensor_slices([7.0, 8.0])], numbers)))
one = tf.distribute.MirroredStrategy(["/cpu:0"])
show("distributed", drain(one.experimental_distribute_dataset(checked().batch(2).with_options(OPTIONS))))
show(
    "distributed behind good ones",
    drain(one.experimental_distribute_dataset(checked([0.0, 1.0, np.nan, 3.0]).batch(1))),
)
made = lambda context: checked([0.0, 1.0, np.nan, 3.0]).batch(1)
show("distributed from a function", drain(one.distribute_datasets_from_function(made)))


def first_error(call):
    try:
        return plain(call())
    except Exception as error:
        return type(error).__name__


show("reduce", first_error(lambda: checked().reduce(0.0, lambda s, x: s + x)))
show("as_numpy_iterator", first_error(lambda: tf.stack(list(checked().as_numpy_iterator()))))
show("py_function itself", first_error(lambda: tf.py_function(lambda: int("x"), [], tf.int64)))
show("numpy_function itself", first_error(lambda: tf.numpy_function(lambda: {}["x"], [], tf.int64)))
