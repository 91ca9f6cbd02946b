"""Datasets of workers in other processes: their elements are made there, and go from there into what the workers compute."""

import gc
import itertools
import logging
import pathlib
import sys
import threading
import types

import keras
import numpy as np
import pytest
from fake_ray import FakeRay

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax._servers._held_data import HeldData
from tfdist_jax._servers._ray_actors import WorkerActor
from tfdist_jax.compat.tensorflow.data._portable_plan import NotPortableError, PortablePlan

BATCH = 4


@pytest.fixture
def engine():
    return "messages"


@pytest.fixture
def fetched(monkeypatch):
    """The numbers of the elements whose arrays have left their workers' processes."""
    numbers = []
    fetch = WorkerActor.fetch

    def observed(self, session, element):
        numbers.append(element)
        return fetch(self, session, element)

    monkeypatch.setattr(WorkerActor, "fetch", observed)
    return numbers


@pytest.fixture
def begun(monkeypatch):
    """What the iterations of workers' processes are over."""
    plans = []
    begin = HeldData.begin

    def observed(self, iteration, make, arguments):
        plans.append(arguments[0])
        begin(self, iteration, make, arguments)

    monkeypatch.setattr(HeldData, "begin", observed)
    return plans


@pytest.fixture
def reasons(caplog):
    """Why datasets stay with the coordinator."""
    from tfdist_jax.compat.tensorflow.data._worker_elements import _tell

    _tell.cache_clear()
    caplog.set_level(logging.WARNING, "tfdist_jax")
    return lambda: [record.args[0] for record in caplog.records if "A worker's dataset" in record.msg]


def rows(count=40):
    return tf.data.Dataset.from_tensor_slices((np.arange(count), np.ones((count, 3), "f4")))


def take_all(coordinator, dataset_fn, count):
    """Return what `next` gives in functions that a worker runs as Python."""
    iterator = iter(coordinator.create_per_worker_dataset(dataset_fn))

    @tf.function(autograph=False)
    def take(iterator):
        element = next(iterator)
        tf.py_function(lambda: None, [], [])
        return element

    results = [coordinator.schedule(take, args=(iterator,)) for _ in range(count)]
    coordinator.join()
    return [result.fetch() for result in results]


def test_elements_go_into_a_step_without_leaving_the_worker(coordinate, fetched, begun):
    strategy, coordinator = coordinate()
    with strategy.scope():
        total, weights = tf.Variable(0), tf.Variable(tf.zeros([3]))

    @tf.function
    def step(iterator):
        number, x = next(iterator)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x * weights)
        weights.assign_sub(tape.gradient(loss, weights))
        total.assign_add(tf.reduce_sum(tf.cast(number, tf.int32)))
        return number

    iterator = iter(coordinator.create_per_worker_dataset(lambda: rows().repeat().batch(BATCH)))
    results = [coordinator.schedule(step, args=(iterator,)) for _ in range(30)]
    coordinator.join()
    numbers = np.concatenate([result.fetch() for result in results])
    assert int(total) == numbers.sum() and numbers.dtype == np.int64
    np.testing.assert_array_equal(weights.numpy(), [-30.0 * BATCH] * 3)
    assert len(begun) == 2 and len(fetched) <= 2  # Those that the function was traced with.
    counts = np.bincount(numbers, minlength=40)
    assert counts.sum() == 30 * BATCH and counts.max() <= 4  # Each worker goes over all in their order.


@pytest.mark.parametrize("is_eager", [False, True])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "float64", "complex64", "string"])
def test_numbers_and_strings_are_what_they_are(coordinate, dtype, is_eager, begun):
    strategy, coordinator = coordinate(1, 1)
    with strategy.scope():
        count = tf.Variable(0)
    values = tf.constant([b"a", b"bc", b"", b"d"]) if dtype == "string" else tf.cast([0, 1, 1, 0], dtype)

    def dataset_fn():
        return tf.data.Dataset.from_tensors({"values": values, "scalar": values[1], "none": values[:0]}).repeat()

    def step(iterator):
        element = next(iterator)
        count.assign_add(1)
        return element

    iterator = iter(coordinator.create_per_worker_dataset(dataset_fn))
    if is_eager:
        found = strategy.workers[0].run(_Closure(lambda: next(iterator.of_current_worker())), lambda: 0)
    else:
        function = tf.function(step)
        found = [coordinator.schedule(function, args=(iterator,)) for _ in range(3)][-1].get()
    assert {name: value.dtype for name, value in found.items()} == dict.fromkeys(found, tf.as_dtype(dtype))
    expected = {"values": values.numpy(), "scalar": values.numpy()[1], "none": values.numpy()[:0]}
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name].numpy(), value)
    assert len(begun) == 1


class _Closure:
    number, notes = 0, {}

    def __init__(self, fn):
        self.fn = fn


def _square(x):
    return x * x


PIPELINES = {
    "shuffled": lambda: rows().shuffle(40, seed=3).batch(7, drop_remainder=True).repeat(3),
    "ahead": lambda: rows().map(lambda x, y: (_square(x), y), num_parallel_calls=2).prefetch(3),
    "filtered": lambda: rows().filter(lambda x, y: x % 3 == 0).take(11).skip(2),
    "branching": lambda: tf.data.Dataset.range(9).map(_halve),
    "nested": lambda: tf.data.Dataset.range(4).interleave(lambda x: tf.data.Dataset.from_tensors(x).repeat(3)),
    "of a tf.function": lambda: tf.data.Dataset.range(6).map(tf.function(_square)).cache().repeat(2),
    "zipped": lambda: tf.data.Dataset.zip((rows(), tf.data.Dataset.random(seed=4))),
    "random": lambda: rows().map(lambda x, y: tf.random.uniform([2], seed=5) + y[0]),
    "strings": lambda: tf.data.Dataset.from_tensor_slices(["b", "a"]).map(lambda s: s + "!"),
    "padded": lambda: tf.data.Dataset.range(1, 5).map(lambda n: tf.fill([n], n)).padded_batch(2),
    "sampled": lambda: tf.data.Dataset.sample_from_datasets([rows(), rows().repeat()], [0.5, 0.5], seed=6).take(30),
}


def _halve(x):
    if x % 2 == 0:
        x = x // 2
    return x


@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_give_what_they_give_in_one_process(coordinate, name, begun):
    tf.random.set_seed(7)
    expected = list(PIPELINES[name]().as_numpy_iterator())
    _, coordinator = coordinate(1, 1)
    tf.random.set_seed(7)
    found = take_all(coordinator, PIPELINES[name], len(expected))
    assert len(begun) == 1
    for element, wanted in zip(found, expected, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, element, wanted)
    with pytest.raises(tf.errors.OutOfRangeError):
        take_all(coordinator, PIPELINES[name], len(expected) + 1)


def test_each_iteration_has_an_order_of_its_own_and_a_seed_brings_all_back(coordinate):
    def orders():
        tf.random.set_seed(1)
        _, coordinator = coordinate(1, 1)
        dataset = tf.data.Dataset.range(20).shuffle(20).batch(20)
        return [take_all(coordinator, dataset, 1)[0].tolist() for _ in range(3)]

    first = orders()
    assert len({tuple(order) for order in first}) == 3
    assert orders() == first
    tf.random.set_seed(1)
    dataset = tf.data.Dataset.range(20).shuffle(20).batch(20)
    assert [next(iter(dataset)).numpy().tolist() for _ in range(3)] == first


def test_an_element_that_fails_is_told_and_the_next_one_comes(coordinate, begun):
    _, coordinator = coordinate(1, 1)

    def dataset_fn():
        return tf.data.Dataset.from_tensor_slices([0.0, 1.0, 4.0, 2.0]).map(
            lambda x: tf.debugging.check_numerics(1 / (x - 1), "of x")
        )

    iterator = iter(coordinator.create_per_worker_dataset(dataset_fn))

    @tf.function
    def take(iterator):
        return next(iterator)

    assert coordinator.schedule(take, args=(iterator,)).fetch() == -1
    coordinator.schedule(take, args=(iterator,))
    with pytest.raises(tf.errors.InvalidArgumentError, match="of x"):
        coordinator.join()
    assert coordinator.schedule(take, args=(iterator,)).fetch() == np.float32(1 / 3)
    assert coordinator.schedule(take, args=(iterator,)).fetch() == 1
    coordinator.schedule(take, args=(iterator,))
    with pytest.raises(tf.errors.OutOfRangeError):
        coordinator.join()
    assert len(begun) == 1


def test_workers_know_which_ones_they_are_in_datasets(coordinate, begun):
    _, coordinator = coordinate(3, 1)
    index = tf.distribute.coordinator.experimental_get_current_worker_index

    def dataset_fn():
        mine = index()
        return tf.data.Dataset.range(2).map(lambda x: (x, mine, index())).repeat()

    iterator = iter(coordinator.create_per_worker_dataset(dataset_fn))

    @tf.function
    def take(iterator):
        return next(iterator), index()

    results = [coordinator.schedule(take, args=(iterator,)) for _ in range(20)]
    for (_, before, inside), worker in (result.fetch() for result in results):
        assert before == inside == worker
    assert len(begun) == 3


def test_functions_have_what_the_program_has_set(coordinate, begun, monkeypatch, tmp_path):
    file = tmp_path / "own_module.py"
    file.write_text("SCALE = 1\ndef scale(x):\n    if x > 2:\n        x = x * SCALE\n    return x\n")
    monkeypatch.syspath_prepend(tmp_path)
    import own_module

    own_module.SCALE = 10
    monkeypatch.setitem(sys.modules, "own_module", own_module)

    def dataset_fn():
        dataset = tf.data.Dataset.range(5).map(own_module.scale)
        for number in (100, 1000):
            # Names mean what they do when the dataset is made.
            dataset = dataset.map(lambda x: x + number)  # noqa: B023
            dataset = dataset.flat_map(lambda x: tf.data.Dataset.from_tensors(x + number))  # noqa: B023
        return dataset

    _, coordinator = coordinate(1, 1)
    assert take_all(coordinator, dataset_fn, 5) == [2200, 2201, 2202, 2230, 2240]
    assert len(begun) == 1


def test_autograph_reads_functions_whose_files_are_not_there(tmp_path):
    file = tmp_path / "gone.py"
    file.write_text(
        "import tfdist_jax.compat.tensorflow as tf\ndef halve(x):\n    if x % 2 == 0:\n        x = x // 2\n    return x\n"
    )
    module = types.ModuleType("gone")
    exec(compile(file.read_text(), str(file), "exec"), vars(module))
    portable = PortablePlan.of(tf.data.Dataset.range(4).map(module.halve)._plan)
    file.unlink()
    import linecache

    linecache.checkcache(str(file))
    assert list(tf.data.Dataset(portable.load()).as_numpy_iterator()) == [0, 1, 1, 3]


def _count():
    yield from range(100)


def _with_python():
    return tf.data.Dataset.range(9).map(lambda x: tf.py_function(lambda v: v + 1, [x], tf.int64))


def _with_variable():
    offset = tf.Variable(1, dtype=tf.int64)
    return tf.data.Dataset.range(9).map(lambda x: x + offset)


def _with_table():
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)
    table.insert([0], [1])
    return tf.data.Dataset.range(9).map(table.lookup)


def _with_layer():
    class Own(keras.layers.Layer):
        def call(self, x):
            return x

    layer = Own()
    return tf.data.Dataset.range(9).map(lambda x: layer(x) + 1)


def _with_iterator():
    numbers = itertools.count(1)
    return tf.data.Dataset.range(9).map(lambda x: x + next(numbers))


def _with_lock():
    lock = threading.Lock()

    def read(x):
        with lock:
            return x + 1

    return tf.data.Dataset.range(9).map(read)


def _in_files():
    return tf.data.Dataset.range(9).map(lambda x: x + 1).cache(str(pathlib.Path.cwd() / "cache"))


STAYING = {
    "generator": (lambda: tf.data.Dataset.from_generator(_count, output_signature=tf.TensorSpec([], tf.int64)).skip(1)),
    "calls Python": _with_python,
    "variable": _with_variable,
    "table": _with_table,
    "Keras": _with_layer,
    "iterator": _with_iterator,
    "copied": _with_lock,
    "files": _in_files,
    "other things than tensors": lambda: tf.data.Dataset.range(1, 9).window(3),
}


@pytest.mark.parametrize("reason", STAYING)
def test_what_shares_something_with_the_program_stays(coordinate, reason, reasons, begun, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    _, coordinator = coordinate(1, 1)
    iterator = iter(coordinator.create_per_worker_dataset(STAYING[reason]))

    @tf.function(autograph=False)
    def take(iterator):
        element = next(iterator)
        return next(iter(element)) if isinstance(element, tf.data.Dataset) else element

    assert coordinator.schedule(take, args=(iterator,)).fetch() == 1
    assert begun == [] and len(reasons()) == 1 and reason in reasons()[0]


def test_what_a_worker_cannot_load_stays(coordinate, reasons, monkeypatch):
    def load(self):
        raise ModuleNotFoundError("No module named 'something'")

    monkeypatch.setattr(PortablePlan, "load", load)
    _, coordinator = coordinate(1, 1)
    assert take_all(coordinator, lambda: tf.data.Dataset.range(2), 2) == [0, 1]
    assert "No module named 'something'" in reasons()[0]


def test_functions_that_fail_on_the_first_element_fail_where_it_is_taken(coordinate, reasons):
    def fail(x):
        raise KeyError("of the program")

    _, coordinator = coordinate(1, 1)
    with pytest.raises(KeyError, match="of the program"):
        take_all(coordinator, tf.data.Dataset.range(3).flat_map(fail), 1)
    assert "of the program" in reasons()[0]


def test_plans_that_stay_say_so():
    with pytest.raises(NotPortableError, match="variable"):
        PortablePlan.of(_with_variable()._plan)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), -1)
    portable = PortablePlan.of(tf.data.Dataset.from_tensor_slices(["a", "b"]).map(table.lookup)._plan)
    assert list(tf.data.Dataset(portable.load()).as_numpy_iterator()) == [1, -1]


def test_workers_hold_no_more_than_is_in_use(coordinate, monkeypatch):
    held = []
    monkeypatch.setattr(HeldData, "__init__", lambda self, init=HeldData.__init__: (init(self), held.append(self))[0])
    strategy, coordinator = coordinate(1, 1)
    with strategy.scope():
        total = tf.Variable(0.0)

    @tf.function
    def step(iterator):
        total.assign_add(tf.reduce_sum(next(iterator)[1]))

    for _ in range(6):
        iterator = iter(coordinator.create_per_worker_dataset(lambda: rows().repeat()))
        for _ in range(10):
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()
    gc.collect()
    (data,) = [data for data in held if data._elements]
    # The function keeps the iterator that it was traced with.
    assert len(data._elements) <= 2 and len(data._iterations) == 2
    assert float(total) == 180


def test_another_workers_elements_come_here(coordinate, fetched):
    strategy, coordinator = coordinate(2, 1)
    with strategy.scope():
        total = tf.Variable(0.0)
    iterator = iter(coordinator.create_per_worker_dataset(lambda: rows().repeat())).values[0].get()

    @tf.function
    def step(iterator):
        total.assign_add(tf.reduce_sum(next(iterator)[1]))

    assert next(iterator)[0].numpy() == 0  # By who is no worker at all.
    for _ in range(20):
        coordinator.schedule(step, args=(iterator,))
    coordinator.join()
    assert float(total) == 60 and fetched


def test_places_are_saved_and_found_again(coordinate):
    _, coordinator = coordinate(1, 1)

    def dataset_fn():
        return tf.data.Dataset.range(30).shuffle(30, seed=2).batch(3)

    iterator = iter(coordinator.create_per_worker_dataset(dataset_fn)).values[0].get()
    before = [next(iterator).numpy().tolist() for _ in range(2)]
    place = iterator.state()
    after = [batch.numpy().tolist() for batch in iterator]
    iterator.restore_state(place)
    assert [batch.numpy().tolist() for batch in iterator] == after
    other = iter(dataset_fn())
    other.restore_state(place)
    assert [batch.numpy().tolist() for batch in other] == after
    assert sorted(itertools.chain(*before, *after)) == list(range(30))


@pytest.mark.parametrize("moment", [1, 5, 17])
def test_a_worker_that_goes_begins_its_data_anew(coordinate, rays, monkeypatch, moment):
    monkeypatch.setenv("TFDIST_HEARTBEAT_TIMEOUT_S", "0.5")
    strategy, coordinator = coordinate(2, 1)
    with strategy.scope():
        total = tf.Variable(0.0)
    count, lock, take = itertools.count(1), threading.Lock(), HeldData.take

    def observed(self, iteration):
        taken = take(self, iteration)
        with lock:
            is_now = next(count) == moment
        if is_now:
            ray: FakeRay = rays[-1]
            thread = threading.current_thread()
            index = next(i for i in range(2) if thread in ray.threads_of("worker", i))
            ray.actors["worker", index].end()
            ray.start("worker", index)
        return taken

    monkeypatch.setattr(HeldData, "take", observed)

    @tf.function
    def step(iterator):
        number, x = next(iterator)
        total.assign_add(tf.reduce_sum(x))
        return number

    iterator = iter(coordinator.create_per_worker_dataset(lambda: rows().repeat()))
    results = [coordinator.schedule(step, args=(iterator,)) for _ in range(30)]
    coordinator.join()
    assert float(total) == 90
    numbers = [int(result.fetch()) for result in results]
    assert numbers.count(0) >= 2 and coordinator.statistics.retries == 1
