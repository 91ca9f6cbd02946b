"""Orders of positions: what a buffer does to them, a chunk at a time."""

import itertools

import numpy as np
from hypothesis import given, settings, strategies as st

from tfdist_jax.compat.tensorflow.data import _order


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(0, 30), st.integers(0, 1000))
def test_a_chunk_is_exchanged_as_its_items_would_be_one_after_the_other(size, count, seed):
    rng = np.random.default_rng(seed)
    buffer, items, places = np.arange(size), np.arange(100, 100 + count), rng.integers(size, size=count)
    expected, found = buffer.copy(), []
    for item, place in zip(items, places, strict=True):
        found.append(expected[place])
        expected[place] = item
    assert _order.exchanged(buffer, items, places).tolist() == found
    assert buffer.tolist() == expected.tolist()


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 7), max_size=6), st.integers(1, 30), st.integers(0, 1000))
def test_every_position_comes_once_and_not_before_it_could(lengths, buffer_size, seed):
    ends = np.cumsum([0, *lengths])
    chunks = [np.arange(a, b) for a, b in itertools.pairwise(ends)]
    mixed = list(_order.shuffled_chunks(chunks, buffer_size, np.random.default_rng(seed)))
    order = np.concatenate(mixed).tolist() if mixed else []
    assert sorted(order) == list(range(ends[-1]))
    assert all(value < position + buffer_size for position, value in enumerate(order))


def test_numbers_stay_with_their_positions():
    chunks = list(_order.numbered([np.array([5, 3]), np.array([8])], seed=7, first=2))
    (shuffled,) = [c for c in _order.shuffled_chunks(chunks, 9, np.random.default_rng(0)) if len(c)]
    assert sorted(shuffled.tolist()) == [[3, 7, 3], [5, 7, 2], [8, 7, 4]]
    assert sorted(_order.without_numbers(shuffled).tolist()) == [3, 5, 8]
    twice = next(_order.numbered([shuffled], seed=1, first=0))
    np.testing.assert_array_equal(_order.without_numbers(twice), shuffled)


def test_keys_tell_rows_apart():
    rows = np.array([[1, 2], [1, 3], [1, 2]])
    assert len(np.unique(_order.keys(rows))) == 2
