"""Datasets of one part of the data: by files, and by hint."""

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow.data._seed_log import DataShard


def values(dataset):
    return [np.asarray(element).tolist() for element in dataset.as_numpy_iterator()]


@pytest.fixture
def names(tmp_path):
    for i in range(5):
        np.save(tmp_path / f"{i}.npy", np.arange(3) + 10 * i)
    return tf.data.Dataset.list_files(str(tmp_path / "*.npy"), shuffle=False)


def rows(name):
    return tf.data.Dataset.from_tensor_slices(np.load(name.numpy()))


def of_file(*numbers):
    return [10 * i + j for i in numbers for j in range(3)]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data,
        lambda data: data.cache(),
        lambda data: data.map(lambda x: x + 1).map(lambda x: x - 1).prefetch(1),
        lambda data: data.with_options(tf.data.Options()).filter(lambda x: x >= 0),
    ],
)
def test_what_is_made_of_files_is_shared_out_by_them(change, names):
    data = change(names.flat_map(rows))
    assert data.files is not None and (data.files.count, data.files.are_read) == (5, False)
    first, second = (data.shared(DataShard("files", 2, i)) for i in (0, 1))
    for _ in range(2):
        assert values(first) == of_file(0, 2, 4)
        assert values(second) == of_file(1, 3)
        assert values(data) == of_file(*range(5))


def test_shuffled_files_are_shuffled_after_they_are_shared_out(names, tmp_path):
    data = tf.data.Dataset.list_files(str(tmp_path / "*.npy"), seed=1).flat_map(rows).shared(DataShard("files", 2, 1))
    orders = [values(data) for _ in range(8)]
    assert all(sorted(order) == of_file(1, 3) for order in orders)
    assert len(set(map(tuple, orders))) == 2


def test_a_cache_of_names_follows_the_share(names):
    data = names.cache().map(tf.io.read_file).map(tf.shape)
    for share in (DataShard("files", 5, 0), DataShard("files", 5, 4), DataShard("files", 3, 0)):
        assert len(values(data.shared(share))) == len(range(share.index, 5, share.count))
        assert len(values(data)) == 5


def test_only_what_is_made_of_files_alone_is_said_to_be():
    numbers = tf.data.Dataset.range(5)
    assert numbers.files is None and numbers.enumerate().files is None


def test_files_joined_with_others_are_made_of_files_only_if_both_are(names):
    data = names.flat_map(rows)
    assert tf.data.Dataset.zip(data, data).files == data.concatenate(data).files == data.files
    assert tf.data.Dataset.zip(data, tf.data.Dataset.range(3)).files is None
    assert data.concatenate(tf.data.Dataset.range(3)).files is None
    both = tf.data.Dataset.zip(data, data.map(lambda x: -x)).shared(DataShard("files", 5, 3))
    assert list(both.as_numpy_iterator()) == [(30, -30), (31, -31), (32, -32)]


def test_too_few_files_are_an_error(names):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"only has 5 file\(s\).*required 6"):
        values(names.shared(DataShard("files", 6, 0)))


def test_hints_are_filled_in_wherever_they_are():
    hint = tf.data.experimental.SHARD_HINT
    data = tf.data.Dataset.range(10).shard(hint, hint).map(lambda x: 2 * x).batch(2)
    assert values(data.shared(DataShard("hint", 3, 1))) == [[2, 8], [14]]
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"AutoShardPolicy\.HINT"):
        values(data.shared(DataShard("files", 3, 1)))
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.data.Dataset.range(10).shard(hint, 0)


def test_an_iteration_over_a_share_is_restored(names):
    shared = names.flat_map(rows).shuffle(4, seed=3).shared(DataShard("files", 2, 0))
    iterator = iter(shared)
    begun = [int(next(iterator)) for _ in range(4)]
    state = iterator.state()
    rest = [int(x) for x in iterator]
    again = iter(shared)
    again.restore_state(state)
    assert [int(x) for x in again] == rest
    assert sorted(begun + rest) == of_file(0, 2, 4)
