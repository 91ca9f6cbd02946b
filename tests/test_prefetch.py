import gc
import threading
import time

import grain
import jax
import numpy as np
import pytest

import tfdist_jax as td
from tfdist_jax._sharding._input import prefetch

STRATEGY = td.Mirrored()


class Counting:
    """Batches that are numbers, with a state that is the same object each time."""

    def __init__(self, count=10):
        self._count = count
        self._state = {"next": 0}

    def __iter__(self):
        return self

    def __next__(self):
        if self._state["next"] == self._count:
            raise StopIteration
        self._state["next"] += 1
        return np.full(8, self._state["next"] - 1)

    def get_state(self):
        return self._state

    def set_state(self, state):
        self._state = dict(state)


def numbers(batches):
    return [int(batch[0]) for batch in batches]


def test_batches_are_placed_ahead_of_their_use():
    placed = []
    results = prefetch(range(5), lambda item: placed.append(item) or item, depth=2)
    assert next(results) == 0
    assert placed == [0, 1, 2]
    assert list(results) == [1, 2, 3, 4]


@pytest.mark.parametrize("depth", [0, 1, 2, 9])
def test_an_error_comes_in_its_own_step_and_what_is_behind_it_after_that(depth):
    results = prefetch(iter([2, 1, 0, 4]), lambda item: 4 // item, depth=depth)
    assert [next(results), next(results)] == [2, 4]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert list(results) == [1]
    assert next(results, None) is None


@pytest.mark.parametrize("depth", [0, 1, 2, 5, 20])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("used", [0, 1, 4, 9, 10])
def test_no_batch_is_skipped_or_repeated_after_a_restart(depth, own, used, tmp_path):
    batches = STRATEGY.prefetch(Counting(), depth=depth, own=own)
    assert numbers(next(batches) for _ in range(used)) == list(range(used))
    with td.Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(used, {"w": np.ones(1)}, position={"data": batches})
    again = STRATEGY.prefetch(Counting(), depth=depth, own=own)
    with td.Checkpointer(tmp_path) as checkpointer:
        checkpointer.restore({"w": np.ones(1)}, position={"data": again})
    assert numbers(again) == list(range(used, 10))
    assert numbers(batches) == list(range(used, 10))
    batches.set_state({"next": 7})
    assert numbers(batches) == [7, 8, 9]
    assert batches.get_state() == {"next": 10}


def test_grains_iterators_come_back_to_the_batch_after_the_last_used():
    data = grain.MapDataset.source(np.arange(40)).shuffle(seed=3).batch(8, batch_fn=np.stack)
    whole = [np.asarray(batch).tolist() for batch in STRATEGY.prefetch(data.to_iter_dataset())]
    batches = STRATEGY.prefetch(data.to_iter_dataset())
    first = [np.asarray(next(batches)).tolist() for _ in range(2)]
    again = STRATEGY.prefetch(iter(data.to_iter_dataset()))
    again.set_state(batches.get_state())
    assert first + [np.asarray(batch).tolist() for batch in again] == whole


def test_the_position_of_what_is_read_ahead_is_refused(tmp_path):
    source = Counting()
    batches = STRATEGY.prefetch(source)
    with td.Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(0, {"w": np.ones(1)}, position=source)
        next(batches)
        with pytest.raises(ValueError, match=r"reads ahead.*Pass what `prefetch` has returned"):
            checkpointer.save(1, {"w": np.ones(1)}, position={"data": [source]})
        checkpointer.save(1, {"w": np.ones(1)}, position={"data": [batches]})
        del batches
        checkpointer.save(2, {"w": np.ones(1)}, position=source)


def test_batches_without_a_state_have_none():
    batches = STRATEGY.prefetch([np.ones(8)])
    assert not hasattr(batches, "get_state")


def test_batches_are_read_while_the_step_runs():
    """Also where nothing is asked of the iterator."""
    read = []
    batches = STRATEGY.prefetch((read.append(i) or np.full(8, i) for i in range(10)), depth=2)
    assert not read
    next(batches)
    until = time.monotonic() + 30
    while len(read) < 5 and time.monotonic() < until:
        time.sleep(0.01)
    assert read == [0, 1, 2, 3, 4]
    assert numbers(batches) == list(range(1, 10))


def test_without_depth_batches_are_read_when_they_are_asked_for():
    where = []
    batches = STRATEGY.prefetch((where.append(threading.current_thread()) or np.ones(8) for _ in range(3)), depth=0)
    next(batches)
    assert where == [threading.main_thread()]
    with pytest.raises(ValueError, match=r"`depth`.*-1"):
        STRATEGY.prefetch([], depth=-1)


def prefetching_threads():
    return [thread for thread in threading.enumerate() if thread.name == "tfdist_jax prefetch"]


@pytest.mark.parametrize("how", ["close", "drop", "exhaust"])
def test_the_thread_ends_with_the_iterator(how):
    gc.collect()
    before = prefetching_threads()
    batches = STRATEGY.prefetch(Counting(10 if how == "exhaust" else 10**9))
    next(batches)
    (thread,) = set(prefetching_threads()) - {*before}
    if how == "close":
        batches.close()
        with pytest.raises(RuntimeError, match="after `close`"):
            next(batches)
    elif how == "exhaust":
        list(batches)
    else:
        del batches
    thread.join(30)
    assert not thread.is_alive()


def test_an_error_of_the_data_is_raised_where_batches_are_asked_for():
    def failing():
        yield np.ones(8)
        raise OSError("the disk is gone")

    batches = STRATEGY.prefetch(failing(), depth=1)
    with pytest.raises(OSError, match="the disk is gone"):
        list(batches)
    with pytest.raises(RuntimeError, match="Batches may be missing") as again:
        next(batches)
    assert isinstance(again.value.__cause__, OSError)


def test_a_process_ends_while_batches_are_being_read(run_script):
    program = """
        import itertools, time
        import numpy as np, tfdist_jax as td
        def slow():
            for i in itertools.count():
                time.sleep(0.05)
                yield np.ones(8)
        batches = td.Mirrored().prefetch(slow())
        print(next(batches).sum())
    """
    ran = run_script(program)
    assert (ran.returncode, ran.stdout) == (0, "8.0\n"), ran.stderr


def test_the_threads_context_is_that_of_the_caller():
    import contextvars

    name = contextvars.ContextVar("name", default=0)
    name.set(5)
    assert numbers(STRATEGY.prefetch(np.full(8, name.get()) for _ in range(2))) == [5, 5]
    assert jax.device_count() == 8
