"""Iterators that several threads share: no element is lost, and none comes twice."""

import sys
import threading

import jax
import numpy as np
import pytest
from environment import LIMIT_S

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax._coordinator import EmbeddedWorker, being_worker, tracing_alone

COUNT = 1500


@pytest.fixture
def switches_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def run_together(*functions):
    """Run functions in threads of their own, and return the errors that they have raised."""
    errors = []

    def run(function):
        try:
            function()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert not any(thread.is_alive() for thread in threads)
    return errors


def taken_together(take):
    """Return what four threads get of `take` until the data ends."""
    found = []

    def go_on():
        try:
            while True:
                found.append(take())
        except (StopIteration, tf.errors.OutOfRangeError):
            pass

    assert run_together(*[go_on] * 4) == []
    return found


@pytest.mark.usefixtures("switches_often")
@pytest.mark.parametrize("is_function", [False, True])
def test_threads_share_the_elements(is_function):
    iterator = iter(tf.data.Dataset.range(COUNT).map(lambda x: x + 1))
    take = (lambda: next(iterator)) if not is_function else tf.function(lambda: next(iterator))
    assert sorted(map(int, taken_together(take))) == list(range(1, COUNT + 1))
    assert f'"position": {COUNT},' in iterator.state()


@pytest.mark.usefixtures("switches_often")
def test_threads_share_the_batches_of_a_strategy():
    strategy = tf.distribute.MirroredStrategy()
    data = strategy.experimental_distribute_dataset(tf.data.Dataset.range(1600).batch(8))
    iterator = iter(data)
    batches = taken_together(lambda: next(iterator))
    rows = np.concatenate([np.concatenate(strategy.experimental_local_results(batch)) for batch in batches])
    assert sorted(rows.tolist()) == list(range(1600))
    assert '"position": 200,' in iterator.state()


def test_element_that_is_given_back_comes_before_those_that_were_taken_behind_it(tmp_path):
    make = lambda: iter(tf.data.Dataset.range(8))
    iterator = make()
    first, second, third, fourth = (iterator.take() for _ in range(4))
    iterator.give_back(third)
    iterator.give_back(first)
    path = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "position")
    assert [int(next(iterator)) for _ in range(3)] == [0, 2, 4]
    other = make()
    tf.train.Checkpoint(iterator=other).restore(path)
    assert list(map(int, other)) == [0, 2, 4, 5, 6, 7]
    assert (int(second[0]), int(fourth[0])) == (1, 3)


def test_place_is_the_plain_one_when_all_that_was_given_back_is_taken():
    iterator = iter(tf.data.Dataset.range(8))
    taken = [iterator.take() for _ in range(3)]
    plain = iterator.state()
    for one in taken:
        iterator.give_back(one)
    assert '"position": 0,' in iterator.state() and "left" not in iterator.state()
    assert [int(next(iterator)) for _ in range(3)] == [0, 1, 2]
    assert iterator.state() == plain


def test_element_of_before_a_restoration_comes_once():
    iterator = iter(tf.data.Dataset.range(4))
    begin = iterator.state()
    taken = iterator.take()
    iterator.restore_state(begin)
    iterator.give_back(taken)
    assert list(map(int, iterator)) == [0, 1, 2, 3]


def test_worker_that_traces_may_wait_for_an_element_that_needs_a_trace():
    is_making, is_tracing, found = threading.Event(), threading.Event(), []

    def generate():
        is_making.set()
        is_tracing.wait(LIMIT_S)
        for number in range(2):
            yield int(tf.function(lambda x: x * 2)(tf.constant(number)))

    iterator = iter(tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec([], tf.int32)))

    def take():
        with being_worker(EmbeddedWorker(0, jax.devices()[0])):
            found.append(int(next(iterator)))

    def trace():
        with being_worker(EmbeddedWorker(0, jax.devices()[0])), tracing_alone():
            is_making.wait(LIMIT_S)
            is_tracing.set()
            found.append(int(next(iterator)))

    assert run_together(take, trace) == []
    assert sorted(found) == [0, 2]
