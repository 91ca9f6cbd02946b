"""Iterators over datasets in checkpoints: saved in the middle, restored by another iterator."""

import tempfile

import numpy as np
import tensorflow as tf
from _facts import error, show

Dataset = tf.data.Dataset
folder = tempfile.mkdtemp()


def rest(iterator):
    return [str(x.numpy()) for x in iterator]


def again(label, make, taken):
    """Go on after `taken` elements from a checkpoint: in the same iterator, and in one over the dataset made anew."""
    iterator = iter(make())
    checkpoint = tf.train.Checkpoint(iterator=iterator)
    for _ in range(taken):
        next(iterator)
    path = checkpoint.save(f"{folder}/{label.replace(' ', '_')}")
    left = rest(iterator)
    checkpoint.restore(path)
    other = iter(make())
    tf.train.Checkpoint(iterator=other).restore(path)
    show(label, [len(left), rest(iterator) == left, rest(other) == left])


again("range", lambda: Dataset.range(10), 3)
again("at the start", lambda: Dataset.range(10), 0)
again("at the end", lambda: Dataset.range(3), 3)
again("batches", lambda: Dataset.range(10).batch(3), 2)
again("maps", lambda: Dataset.range(10).map(lambda x: x * x).batch(2).map(lambda b: b + 1), 2)
again("repeated", lambda: Dataset.range(4).repeat(3), 6)
again("shuffled", lambda: Dataset.range(50).shuffle(10, seed=1), 20)
again("shuffled batches, repeated", lambda: Dataset.range(20).shuffle(20, seed=1).batch(4).repeat(3), 7)
again("prefetched", lambda: Dataset.range(50).shuffle(50, seed=2).prefetch(4), 9)
again("filtered", lambda: Dataset.range(20).filter(lambda x: x % 3 == 0), 2)
again("joined", lambda: Dataset.range(5).concatenate(Dataset.range(3)), 6)
again("flat_map", lambda: Dataset.range(5).flat_map(lambda x: Dataset.range(x)), 4)
again("interleaved", lambda: Dataset.range(5).interleave(lambda x: Dataset.range(x), cycle_length=2), 4)
again("scanned", lambda: Dataset.range(9).scan(tf.constant(0, tf.int64), lambda s, x: (s + x, s)), 5)
again("windows", lambda: Dataset.range(9).window(3).flat_map(lambda w: w.batch(3)), 1)
again("padded", lambda: Dataset.from_tensor_slices([[1, 2], [3, 4], [5, 6]]).padded_batch(2, [4]), 1)
parts = lambda: [Dataset.range(5), Dataset.range(10, 15)]
again("sampled", lambda: Dataset.sample_from_datasets(parts(), seed=4), 4)
again("chosen", lambda: Dataset.choose_from_datasets(parts(), Dataset.range(2).repeat(5)), 4)
again("texts", lambda: Dataset.from_tensor_slices(["a", "b", "c"]).repeat(2), 4)

order = Dataset.range(30).shuffle(30)
iterator = iter(order)
checkpoint = tf.train.Checkpoint(iterator=iterator)
for _ in range(12):
    next(iterator)
path = checkpoint.save(f"{folder}/free")
left = rest(iterator)
checkpoint.restore(path)
show("an order without a seed", rest(iterator) == left)
for _ in range(2):
    checkpoint.restore(path)
    show("restored again", rest(iterator) == left)
other = iter(Dataset.range(30))
status = tf.train.Checkpoint(other=other).restore(path)
error("not in the checkpoint", status.assert_consumed)


def drain(iterator, most=20):
    """What is left, an error's name in place of each element that could not be made."""
    found = []
    for _ in range(most):
        try:
            found.append(next(iterator).numpy().tolist())
        except StopIteration:
            break
        except Exception as failure:
            found.append(type(failure).__name__)
    return found


def again_behind_errors(label, make, taken):
    """As `again`, where some of the elements are errors."""
    iterator = iter(make())
    checkpoint = tf.train.Checkpoint(iterator=iterator)
    show(f"{label} before", drain(iterator, taken))
    path = checkpoint.save(f"{folder}/{label.replace(' ', '_')}")
    show(f"{label} behind", drain(iterator))
    checkpoint.restore(path)
    show(f"{label} behind again", drain(iterator))
    other = iter(make())
    tf.train.Checkpoint(iterator=other).restore(path)
    show(f"{label} behind elsewhere", drain(other))


# Rows of different lengths cannot be one batch.
lengths = lambda numbers: Dataset.from_tensor_slices(np.int64(numbers)).map(tf.range).batch(2)
for taken in range(1, 5):
    again_behind_errors(f"errors {taken}", lambda: lengths([1, 1, 2, 1, 2, 2, 1, 2, 3, 3]), taken)
    again_behind_errors(f"errors first {taken}", lambda: lengths([1, 2, 1, 1, 2, 3, 2, 2]).prefetch(2).repeat(2), taken)
