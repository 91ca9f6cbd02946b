"""Positions of iterators: saved, and found again by an iterator over the dataset made anew, by another process too."""

import json
import subprocess
import sys

import numpy as np
import pytest
from environment import LIMIT_S

import tfdist_jax.compat.tensorflow as tf

Dataset = tf.data.Dataset


def noisy(x):
    return tf.cast(x, tf.float32) + tf.random.uniform([])


def noisy_in_python(x):
    return noisy(x) if int(x) % 2 else -noisy(x)


def generated():
    return Dataset.from_generator(lambda: iter(range(20)), output_signature=tf.TensorSpec([], tf.int32))


DATASETS = {
    "shuffled": lambda: Dataset.range(40).shuffle(15).batch(3).repeat(3),
    "noise": lambda: Dataset.range(40).map(noisy).batch(3).repeat(2),
    "noise in batches": lambda: Dataset.range(40).batch(4).map(lambda b: noisy(b) + tf.random.normal([4])),
    "noise, then shuffled": lambda: Dataset.range(40).map(noisy).shuffle(10).repeat(2).batch(5).prefetch(2),
    "noise twice": lambda: Dataset.range(40).map(noisy).shuffle(10).map(noisy).batch(5),
    "noise in Python": lambda: Dataset.range(20).shuffle(20).map(noisy_in_python).repeat(2),
    "filtered by chance": lambda: Dataset.range(90).filter(lambda x: tf.random.uniform([]) < 0.5),
    "generator": lambda: generated().shuffle(7).map(noisy).batch(2),
    "cached": lambda: Dataset.range(20).map(noisy).shuffle(20).cache().repeat(3),
    "shuffled parts": lambda: Dataset.range(4).flat_map(lambda n: Dataset.range(9).shuffle(9).map(noisy)),
    "zipped": lambda: Dataset.zip(Dataset.range(20).shuffle(20), Dataset.range(20).shuffle(20).map(noisy)),
    "sampled": lambda: Dataset.sample_from_datasets([Dataset.range(20).shuffle(9), Dataset.range(50, 70)]),
    "resampled": lambda: Dataset.range(80).rejection_resample(lambda x: x % 2, [0.3, 0.7]),
}


def rest(iterator):
    return [[np.asarray(part).tolist() for part in tf.nest.flatten(element)] for element in iterator]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("taken", [0, 1, 7])
@pytest.mark.parametrize("make", DATASETS.values(), ids=DATASETS)
def test_an_iterator_goes_on_where_another_was(make, taken, tmp_path):
    iterator = iter(make())
    for _ in range(taken):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "position")
    left = rest(iterator)
    other = iter(make())
    tf.train.Checkpoint(iterator=other).restore(path)
    assert rest(other) == left
    assert left


def test_the_passes_after_a_restored_one_are_the_same_too():
    first = Dataset.range(30).shuffle(30, seed=3)
    iterator = iter(first)
    next(iterator)
    state = iterator.state()
    passes = [rest(iterator), rest(first), rest(first)]
    again = Dataset.range(30).shuffle(30, seed=3)
    iterator = iter(again)
    iterator.restore_state(state)
    assert [rest(iterator), rest(again), rest(again)] == passes


def test_a_state_is_small_and_text():
    iterator = iter(Dataset.range(100_000).shuffle(100_000).map(noisy).repeat().batch(10))
    for _ in range(20):
        next(iterator)
    assert json.loads(iterator.state())["position"] == 20
    assert len(iterator.state()) < 1000


def test_in_the_middle_of_data_batches_keep_their_size(tmp_path):
    iterator = iter(Dataset.range(40).batch(4))
    begin = tf.train.Checkpoint(iterator=iterator).write(tmp_path / "begin")
    for _ in range(3):
        next(iterator)
    middle = tf.train.Checkpoint(iterator=iterator).write(tmp_path / "middle")
    other = tf.train.Checkpoint(iterator=iter(Dataset.range(40).batch(5)))
    with pytest.raises(ValueError, match=r"first step had 4 rows; here it has 5. .*same global batch"):
        other.read(middle)
    other.read(begin)
    assert len(rest(other.iterator)) == 8


_PROGRAM = """
import sys
import numpy as np
import tfdist_jax.compat.tensorflow as tf
dataset = tf.data.Dataset.range(60).shuffle(20).map(lambda x: tf.cast(x, tf.float32) + tf.random.uniform([]))
iterator = iter(dataset.batch(4).repeat(2).prefetch(2))
checkpoint = tf.train.Checkpoint(iterator=iterator)
if sys.argv[2] == "save":
    for _ in range(11):
        next(iterator)
    checkpoint.write(sys.argv[1])
else:
    checkpoint.read(sys.argv[1])
print([x.numpy().tolist() for x in iterator])
"""


def test_another_process_goes_on_with_the_same_elements(tmp_path):
    runs = [
        subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(tmp_path / "position"), what],
            capture_output=True,
            text=True,
            check=True,
            timeout=LIMIT_S,
        ).stdout
        for what in ("save", "read")
    ]
    assert runs[0] == runs[1]
    assert len(runs[0]) > 500


class InterruptedOnce:
    """Counts to ten, with a Ctrl-C in between; as an iterator, or as what gives a new one each time."""

    def __init__(self):
        self.left, self.is_due = iter(range(10)), True

    def __iter__(self):
        return self

    def __next__(self):
        number = next(self.left)
        if number == 3 and self.is_due:
            self.is_due = False
            raise KeyboardInterrupt
        return number


def test_what_cannot_be_made_again_after_an_interrupt_is_an_error():
    source = InterruptedOnce()
    iterator = iter(tf.data.Dataset.from_generator(lambda: source, output_signature=tf.TensorSpec((), tf.int32)))
    assert [int(next(iterator)) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    for _ in range(2):
        with pytest.raises(
            RuntimeError, match=r"the same InterruptedOnce again.*Let it return a new iterator each time"
        ):
            next(iterator)


def test_what_can_be_made_again_goes_on_after_an_interrupt():
    interrupts = [True]

    def generate():
        for number in range(10):
            if number == 3 and interrupts:
                interrupts.clear()
                raise KeyboardInterrupt
            yield number

    iterator = iter(tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec((), tf.int32)))
    assert [int(next(iterator)) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    assert [int(number) for number in iterator] == list(range(3, 10))


def test_an_iterator_given_once_may_be_placed_before_it_has_begun(tmp_path):
    def begin(source):
        dataset = tf.data.Dataset.from_generator(lambda: source, output_signature=tf.TensorSpec((), tf.int32))
        iterator = iter(dataset)
        return iterator, tf.train.Checkpoint(iterator=iterator)

    iterator, checkpoint = begin(iter(range(10)))
    assert [int(next(iterator)) for _ in range(3)] == [0, 1, 2]
    path = checkpoint.save(tmp_path / "ckpt")
    with pytest.raises(RuntimeError, match="the same range_iterator again"):
        checkpoint.restore(path)
    iterator, checkpoint = begin(iter(range(10)))
    checkpoint.restore(path)
    assert [int(number) for number in iterator] == list(range(3, 10))
