"""Batches of in-memory data: several are made at once, and nobody sees it."""

import copy

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow.data import _iterator, _plan
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog

Dataset = tf.data.Dataset


@settings(deadline=None, max_examples=40)
@given(
    count=st.integers(0, 40),
    size=st.integers(1, 9),
    drop=st.booleans(),
    at_once=st.sampled_from([0, 50, 200, 1 << 22]),
)
def test_batches_are_the_same_however_many_are_made_at_once(count, size, drop, at_once):
    x = np.arange(2 * count).reshape(count, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_plan, "_AT_ONCE", at_once)
        found = [b.tolist() for b in Dataset.from_tensor_slices(x).batch(size, drop).as_numpy_iterator()]
    whole = [x[i : i + size].tolist() for i in range(0, count, size)]
    assert found == [batch for batch in whole if len(batch) == size or not drop]


def counting(dataset):
    """Return the plan of a dataset of rows, and a list that will hold how many of them were got together."""
    plan, asked = dataset._plan, []
    counted = copy.copy(plan)
    vars(counted)["get"] = lambda p: asked.append(len(p)) or plan.get(p)
    return counted, asked


def test_few_large_rows_are_copied_at_a_time():
    images = np.zeros((20, 1 << 18), "f4")  # 1 MB each.
    plan, asked = counting(Dataset.from_tensor_slices(images).shuffle(20))
    assert len(list(plan.batches(SeedLog(), 2))) == 10
    assert len(list(plan.elements(SeedLog()))) == 20
    assert max(asked) == 4


def test_small_rows_are_got_together():
    plan, asked = counting(Dataset.range(10_000).shuffle(10_000))
    assert len(list(plan.batches(SeedLog(), 10))) == 1000
    assert len(asked) < 5


def test_an_element_that_is_repeated_is_not_copied():
    array = np.zeros((3, 4), "f4")
    elements = Dataset.from_tensors(array).repeat().as_numpy_iterator()
    first, second = next(elements), next(elements)
    assert np.shares_memory(first, second)


def test_a_function_sees_the_values_that_variables_have_when_its_batch_is_asked_for():
    factor = tf.Variable(1)
    batches = Dataset.range(12).map(lambda x: tf.cast(x, tf.int32) * factor).batch(4).as_numpy_iterator()
    found = [next(batches).tolist()]
    factor.assign(10)
    found.append(next(batches).tolist())
    factor.assign(100)
    found.append(next(batches).tolist())
    assert found == [[0, 1, 2, 3], [40, 50, 60, 70], [800, 900, 1000, 1100]]


def test_tensors_of_many_batches_are_right():
    x = np.arange(400, dtype="f4").reshape(200, 2)
    y = np.arange(200) + (1 << 40)
    rows, numbers, types = [], [], set()
    for a, b in Dataset.from_tensor_slices((x, {"y": y, "t": y > 3})).batch(2):
        rows += a.numpy().tolist()
        numbers += b["y"].numpy().tolist()
        types.add((a.dtype, b["y"].dtype, b["t"].dtype))
    assert rows == x.tolist()
    assert numbers == y.tolist()
    assert types == {(tf.float32, tf.int64, tf.bool)}


@pytest.mark.parametrize("shape", [(3,), (64, 1024)])
def test_tensors_have_memory_of_their_own(shape):
    array = np.zeros(shape, "f4")
    (tensor,) = jax.block_until_ready(_iterator._to_device(array))
    array[:] = 1
    assert not tensor.any()


def test_a_generator_may_use_its_memory_again():
    def generate():
        array = np.zeros(5000, "f4")
        for i in range(100):
            array[:] = i
            yield array

    dataset = Dataset.from_generator(generate, output_signature=tf.TensorSpec([5000], tf.float32))
    kept = list(dataset)
    assert [sorted({*x.numpy().tolist()}) for x in kept] == [[i] for i in range(100)]


def test_tensors_may_change_their_shape_on_the_way():
    sizes = [2] * 40 + [3] * 40 + [2, 3] * 5
    dataset = Dataset.from_generator(
        lambda: (np.full(n, i, "i4") for i, n in enumerate(sizes)), output_signature=tf.TensorSpec([None], tf.int32)
    )
    assert [(int(x[0]), len(x)) for x in dataset] == list(enumerate(sizes))


def test_texts_go_through_long_iterations():
    texts = [str(i) for i in range(100)]
    assert [t.numpy().decode() for t in Dataset.from_tensor_slices(texts)] == texts
