"""Random numbers in functions of elements: compiled for whole batches, and each element's own."""

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

Dataset = tf.data.Dataset


def numbers(dataset):
    return np.concatenate([np.ravel(element) for element in dataset.as_numpy_iterator()]).tolist()


@pytest.fixture(autouse=True)
def global_seed():
    tf.random.set_seed(1)


def test_a_function_that_draws_is_traced_once_and_draws_for_each_element():
    traces = []
    dataset = Dataset.range(1000).map(lambda x: traces.append(1) or tf.random.uniform([]))
    assert len(set(numbers(dataset.batch(100)))) == 1000
    assert len(traces) == 1


def test_draws_do_not_depend_on_how_elements_are_batched():
    dataset = Dataset.range(50).map(lambda x: tf.random.normal([2], seed=4))
    assert numbers(dataset) == numbers(dataset.batch(7)) == numbers(dataset.batch(50))


def test_elements_keep_their_draws_when_they_are_shuffled_and_cached():
    drawn = Dataset.range(50).map(lambda x: (x, tf.random.uniform([])))
    plain = {int(x): float(u) for x, u in drawn}
    cached = drawn.shuffle(20).cache().batch(8)
    for _ in range(2):
        found = {int(x): float(u) for xs, us in cached.as_numpy_iterator() for x, u in zip(xs, us, strict=True)}
        assert found == plain


def test_a_function_in_python_draws_as_the_compiled_one():
    def in_python(x):
        return tf.random.uniform([], seed=3) + tf.random.uniform([]) if int(x) >= 0 else 0.0

    compiled = Dataset.range(5).map(lambda x: tf.random.uniform([], seed=3) + tf.random.uniform([]))
    assert numbers(Dataset.range(5).map(in_python)) == pytest.approx(numbers(compiled))


def test_a_generator_of_the_users_own_goes_on_from_element_to_element():
    generator = tf.random.Generator.from_seed(1)
    dataset = Dataset.range(3).map(lambda x: generator.uniform([]))
    drawn = [*numbers(dataset), *numbers(dataset)]
    assert len(set(drawn)) == 6
    assert drawn[:3] == [float(tf.random.Generator.from_seed(1).uniform([])), *drawn[1:3]]


def test_what_comes_after_a_map_in_the_program_draws_as_without_it():
    alone = float(tf.random.uniform([]))
    tf.random.set_seed(1)
    numbers(Dataset.range(3).map(lambda x: tf.random.uniform([])))
    assert float(tf.random.uniform([])) == alone
