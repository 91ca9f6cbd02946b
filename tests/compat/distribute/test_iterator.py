"""Iterators over distributed data, saved in the middle, go on in another iterator, over other replicas too."""

import itertools
import json

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

Dataset = tf.data.Dataset


def shuffled(context=None):
    return Dataset.range(46).shuffle(46).map(lambda x: x * 10).batch(6).repeat(2).prefetch(2)


def strategy_of(replicas):
    return tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(replicas)])


SOURCES = {
    "split": lambda strategy: strategy.experimental_distribute_dataset(shuffled()),
    "left on the host": lambda strategy: strategy.experimental_distribute_dataset(
        shuffled(), tf.distribute.InputOptions(experimental_fetch_to_device=False)
    ),
    "from a function": lambda strategy: strategy.distribute_datasets_from_function(shuffled),
    "a list": lambda strategy: strategy.experimental_distribute_dataset(list(np.arange(48).reshape(12, 4))),
}


def rows(strategy, batch):
    return np.concatenate(strategy.experimental_local_results(batch)).tolist()


def rest(strategy, iterator):
    return [rows(strategy, batch) for batch in iterator]


@pytest.mark.parametrize("taken", [0, 1, 7])
@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_an_iterator_goes_on_where_another_was(make, taken, tmp_path):
    strategy = strategy_of(2)
    iterator = iter(make(strategy))
    for _ in range(taken):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "place")
    left = rest(strategy, iterator)
    other = iter(make(strategy))
    next(other)
    tf.train.Checkpoint(iterator=other).restore(path).assert_consumed()
    assert rest(strategy, other) == left
    assert left


def with_errors(context=None):
    numbers = [float("nan"), 1.0, 2.0, 3.0, 4.0, float("nan"), 6.0, 7.0, 8.0, 9.0, 10.0, 11.0]
    return Dataset.from_tensor_slices(numbers).map(lambda x: tf.debugging.check_numerics(x, "m")).batch(2)


FAILING = {
    "split": (
        lambda strategy: strategy.experimental_distribute_dataset(with_errors()),
        ["error", [1, 2], [3, 4], "error", [6, 7], [8, 9], [10, 11]],
    ),
    "from a function": (
        lambda strategy: strategy.distribute_datasets_from_function(with_errors),
        ["error", [1, 2, 3, 4], "error", [6, 7, 8, 9], [10, 11]],
    ),
}


def drain(strategy, iterator, most=9):
    found = []
    for _ in range(most):
        try:
            found.append(rows(strategy, next(iterator)))
        except StopIteration:
            break
        except tf.errors.InvalidArgumentError:
            found.append("error")
    return found


@pytest.mark.parametrize("taken", range(4))
@pytest.mark.parametrize("kind", FAILING)
def test_an_iterator_goes_on_behind_errors_which_come_in_their_step(kind, taken, tmp_path):
    strategy = strategy_of(2)
    make, steps = FAILING[kind]
    iterator = iter(make(strategy))
    assert drain(strategy, iterator, taken) == steps[:taken]
    path = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "place")
    assert drain(strategy, iterator) == steps[taken:]
    other = iter(make(strategy))
    tf.train.Checkpoint(iterator=other).restore(path).assert_consumed()
    assert drain(strategy, other) == steps[taken:]


@pytest.mark.parametrize("replicas", [1, 3])
def test_it_may_go_on_over_other_replicas(replicas, tmp_path):
    first, second = strategy_of(2), strategy_of(replicas)
    iterator = iter(first.experimental_distribute_dataset(shuffled()))
    seen = [rows(first, next(iterator)) for _ in range(3)]
    path = tf.train.Checkpoint(iterator=iterator).write(tmp_path / "place")
    other = iter(second.experimental_distribute_dataset(shuffled()))
    tf.train.Checkpoint(iterator=other).read(path)
    seen += rest(second, other)
    assert sorted(np.concatenate(seen)) == sorted([*range(0, 460, 10)] * 2)


def test_the_passes_after_a_restored_one_are_the_same_too():
    strategy = strategy_of(2)
    make = lambda: strategy.experimental_distribute_dataset(Dataset.range(30).shuffle(30, seed=3).batch(4))
    data = make()
    list(data)
    iterator = iter(data)
    next(iterator)
    state = iterator.state()
    passes = [rest(strategy, iterator), rest(strategy, data)]
    data = make()
    iterator = iter(data)
    iterator.restore_state(state)
    assert [rest(strategy, iterator), rest(strategy, data)] == passes
    assert passes[0] != passes[1]


def test_an_iterator_that_is_over_stays_so():
    strategy = strategy_of(2)
    data = strategy.experimental_distribute_dataset(Dataset.range(4).batch(2))
    iterator = iter(data)
    list(iterator)
    other = iter(data)
    other.restore_state(iterator.state())
    assert list(other) == []
    assert other.state() == iterator.state()


def test_data_of_each_process_is_not_given_to_another_number_of_them():
    strategy = strategy_of(2)
    data = strategy.distribute_datasets_from_function(lambda context: Dataset.range(8).batch(2))
    iterator = iter(data)
    state = json.loads(iterator.state())
    state.update(position=1, seeds=state["seeds"] * 4)
    with pytest.raises(ValueError, match="data that 4 processes have each of its own; here all processes have"):
        iterator.restore_state(json.dumps(state))
    state.update(position=0)
    iterator.restore_state(json.dumps(state))
    assert sorted(np.concatenate(rest(strategy, iterator))) == list(range(8))


@pytest.mark.parametrize("kind", ["split", "from a function"])
def test_in_the_middle_of_data_it_does_not_go_on_in_batches_of_another_size(kind):
    strategy = strategy_of(2)
    batches = {"split": 1, "from a function": 2}[kind]  # In each step.
    iterator = iter(SOURCES[kind](strategy))
    begin = iterator.state()
    list(itertools.islice(iterator, 3))
    larger = lambda context: Dataset.range(46).shuffle(46).batch(8)
    make = strategy.distribute_datasets_from_function
    changed = iter(make(larger) if batches == 2 else strategy.experimental_distribute_dataset(larger(None)))
    message = f"first step had {6 * batches} rows; here it has {8 * batches}. .*same global batch"
    with pytest.raises(ValueError, match=message):
        changed.restore_state(iterator.state())
    changed.restore_state(begin)
    assert len(rest(strategy, changed)) == -(-46 // (8 * batches))


def test_a_place_behind_a_partial_batch_is_no_change():
    strategy = strategy_of(2)
    make = lambda: iter(strategy.experimental_distribute_dataset(Dataset.range(10).batch(4).repeat(2)))
    iterator = make()
    for taken in range(1, 6):
        next(iterator)
        other = make()
        other.restore_state(iterator.state())
        assert json.loads(other.state()) == json.loads(iterator.state())
        assert len(rest(strategy, other)) == 6 - taken


def test_pipelines_of_each_replica_have_seeds_of_their_own():
    strategy = strategy_of(2)
    options = tf.distribute.InputOptions(
        experimental_fetch_to_device=False,
        experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA,
    )
    make = lambda: iter(strategy.distribute_datasets_from_function(shuffled, options))
    iterator = make()
    next(iterator)
    state = iterator.state()
    other = make()
    other.restore_state(state)
    left = rest(strategy, iterator)
    assert rest(strategy, other) == left
    assert len(left) == 15


PER_REPLICA = tf.distribute.InputOptions(
    experimental_fetch_to_device=False,
    experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA,
)


@pytest.mark.parametrize(("drop", "iterated"), [(True, 3), (False, 4)])
def test_replicas_whose_own_pipeline_is_over_wait_for_others_only_in_batches_of_open_size(drop, iterated):
    """As in TensorFlow: `get_next_as_optional` gives the last step in any case."""
    strategy = strategy_of(2)
    data = strategy.distribute_datasets_from_function(
        lambda context: Dataset.range(6 if context.input_pipeline_id else 8).batch(2, drop_remainder=drop), PER_REPLICA
    )
    assert len(data) == data.cardinality == len(list(data)) == iterated
    iterator = iter(data)
    steps = [iterator.get_next_as_optional() for _ in range(5)]
    assert [bool(step.has_value()) for step in steps] == [True] * 4 + [False]
    first, second = strategy.experimental_local_results(steps[3].get_value())
    assert (first.numpy().tolist(), second.shape) == ([6, 7], (0,))


def test_iterations_end_before_a_step_that_some_replicas_have_no_batch_for():
    strategy = strategy_of(2)
    data = strategy.distribute_datasets_from_function(lambda context: Dataset.range(6).batch(2, drop_remainder=True))
    assert len(data) == data.cardinality == 1
    assert [batch.tolist() for batch in data.as_numpy_iterator()] == [[0, 1, 2, 3]]
    iterator = iter(data)
    assert rows(strategy, next(iterator)) == [0, 1, 2, 3]
    other = iter(data)
    other.restore_state(iterator.state())
    assert bool(other.get_next_as_optional().has_value())
    with pytest.raises(tf.errors.OutOfRangeError):
        iterator.get_next()
    assert not bool(iterator.get_next_as_optional().has_value())
    other.restore_state(iterator.state())
    assert list(other) == []


@pytest.mark.parametrize("is_distributed", [True, False])
def test_a_place_in_data_that_are_empty_now_is_an_error(is_distributed, tmp_path):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    begin = lambda data: iter(strategy.experimental_distribute_dataset(data) if is_distributed else data)
    iterator = begin(tf.data.Dataset.range(8).batch(2))
    next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "place")
    with pytest.raises(ValueError, match="first step had 2 rows; here it has 0"):
        tf.train.Checkpoint(iterator=begin(tf.data.Dataset.range(0).batch(2))).restore(path)
