"""Datasets of workers in other processes: their elements are made there, and go from there into what the workers compute."""

import collections
import functools
import gc
import io
import itertools
import linecache
import logging
import os
import pathlib
import pickle
import random
import subprocess
import sys
import threading
import types
import typing

import keras
import numpy as np
import pytest
from environment import LIMIT_S
from fake_ray import FakeRay
from waiting import wait_until

import tfdist_jax
import tfdist_jax.compat.tensorflow as tf
from tfdist_jax._coordinator import HeldElement
from tfdist_jax._servers._held_data import HeldData
from tfdist_jax.compat.tensorflow.data._portable_plan import NotPortableError, PortablePlan
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog
from tfdist_jax.compat.tensorflow.data._worker_elements import _Loaded, _standing_for

BATCH = 4


@pytest.fixture
def engine():
    return "messages"


@pytest.fixture
def fetched(monkeypatch):
    """The numbers of the elements whose arrays have left their workers' processes."""
    numbers = []
    fetch = HeldData.fetch

    def observed(self, element):
        numbers.append(element)
        return fetch(self, element)

    monkeypatch.setattr(HeldData, "fetch", observed)
    return numbers


@pytest.fixture
def loaded(monkeypatch):
    """The plans that are in workers' processes."""
    plans = []
    load = HeldData.load

    def observed(self, source, make, arguments):
        plans.append(arguments[0])
        load(self, source, make, arguments)

    monkeypatch.setattr(HeldData, "load", observed)
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


# After how many steps a worker that has done none of them is none that is merely slow.
MANY = 20_000


def take_until_all_have(coordinator, take, iterator, workers):
    """Return what `take` has given in rounds, its worker last, until each worker has taken some: a quick one may take all of a round."""
    pairs, have_taken = [], set()
    while len(pairs) < MANY and have_taken != {*workers}:
        results = [coordinator.schedule(take, args=(iterator,)) for _ in range(20)]
        pairs += [result.fetch() for result in results]
        have_taken = {int(worker) for _, worker in pairs}
    assert have_taken == {*workers}
    return pairs


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


def test_elements_go_into_a_step_without_leaving_the_worker(coordinate, fetched, loaded):
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
    assert len(loaded) == 2 and len(fetched) <= 2  # Those that the function was traced with.
    counts = np.bincount(numbers, minlength=40)
    assert counts.sum() == 30 * BATCH and counts.max() <= 4  # Each worker goes over all in their order.


@pytest.mark.parametrize("is_eager", [False, True])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "float64", "complex64", "string"])
def test_numbers_and_strings_are_what_they_are(coordinate, dtype, is_eager, loaded):
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
    assert len(loaded) == 1


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


class Pair(typing.NamedTuple):
    first: typing.Any
    second: typing.Any


class OwnError(ValueError):
    pass


class Adds:
    def __init__(self, number):
        self.number = number

    def __call__(self, x):
        return x + self.number

    def add(self, x, twice=2):
        return x + self.number * twice


def _fail_at_two(x):
    if int(x) == 2:
        raise OwnError("of the program")
    return x


ELSEWHERE = {
    **PIPELINES,
    "operators": lambda: tf.data.Dataset.range(3, output_type=tf.int32).map(lambda x: x / 2),
    "seeds of operations": lambda: tf.data.Dataset.range(4).map(lambda x: tf.random.uniform([], seed=5)),
    "shuffled inside": lambda: tf.data.Dataset.range(2).flat_map(lambda x: tf.data.Dataset.range(9).shuffle(9, seed=3)),
    "named tuples": lambda: tf.data.Dataset.range(3).map(lambda x: Pair(x, x + 1)),
    "callable objects": lambda: tf.data.Dataset.range(3).map(Adds(4)).map(Adds(5).add),
    "partial functions": lambda: tf.data.Dataset.range(3).map(functools.partial(Adds(5).add, twice=3)),
    "errors": lambda: tf.data.Dataset.range(4).map(tf.autograph.experimental.do_not_convert(_fail_at_two)),
    "files": lambda: tf.data.TextLineDataset("lines.txt"),
}


@pytest.fixture(scope="module")
def made_elsewhere(tmp_path_factory):
    """For each of `ELSEWHERE`, the dataset, what this process makes of it, and what another one does that runs in another folder."""
    folder, other = tmp_path_factory.mktemp("program"), tmp_path_factory.mktemp("other")
    (folder / "lines.txt").write_text("a\nb\n")
    file = folder / "stale.py"
    file.write_text("def scale(x):\n    if x > 1:\n        x = x * 10\n    return x\n")
    module = types.ModuleType("stale")
    exec(compile(file.read_text(), str(file), "exec"), vars(module))
    linecache.getlines(str(file))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        tf.random.set_seed(7)
        made, sent = {}, {}
        for name, make in {**ELSEWHERE, "stale": lambda: tf.data.Dataset.range(3).map(module.scale)}.items():
            dataset, seeds = make(), SeedLog()
            elements = dataset._plan.elements(seeds)
            sent[name] = _Loaded, (PortablePlan.of(dataset._plan), 0), seeds.seeds()
            made[name] = dataset, seeds.seeds(), outcomes(elements)
        tf.random.set_seed(None)
    file.write_text(file.read_text().replace("10", "77"))
    program = pathlib.Path(__file__).parents[2] / "programs" / "elements_elsewhere.py"
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(tfdist_jax.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, str(program)], input=pickle.dumps(sent), stdout=-1, cwd=other, env=environment, timeout=LIMIT_S
    )
    assert done.returncode == 0
    found = pickle.loads(done.stdout)
    return {name: (*made[name], *found[name]) for name in made}


def outcomes(elements):
    """Return the elements, and errors in the places of those that cannot be made."""
    found = []
    while True:
        try:
            found.append(next(elements))
        except StopIteration:
            return found
        except Exception as error:
            found.append(error)


@pytest.mark.parametrize("name", [*ELSEWHERE, "stale"])
def test_another_process_makes_what_this_one_makes(made_elsewhere, name):
    dataset, seeds, expected, taken, found = made_elsewhere[name]
    assert taken == seeds
    spec = dataset.element_spec
    elements = outcomes(
        map(
            functools.partial(_standing_for, spec),
            ((HeldElement(Elsewhere(arrays), 0), told) for arrays, told in found),
        )
    )
    assert len(elements) == len(expected)
    for element, wanted in zip(elements, expected, strict=True):
        if isinstance(wanted, Exception):
            assert type(element) is type(wanted) and str(element) == str(wanted)
            continue
        tf.nest.assert_same_structure(element, wanted)
        for part, own in zip(tf.nest.flatten(element), tf.nest.flatten(wanted), strict=True):
            assert np.asarray(part).dtype == own.dtype
            np.testing.assert_array_equal(np.asarray(part), own)


class Elsewhere:
    """Stands for a process that has written the arrays of its element."""

    def __init__(self, arrays):
        self._arrays = arrays

    def fetch(self, number):
        return self._arrays

    def release(self, kind, number):
        pass


@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_give_what_they_give_in_one_process(coordinate, name, loaded):
    tf.random.set_seed(7)
    expected = list(PIPELINES[name]().as_numpy_iterator())
    _, coordinator = coordinate(1, 1)
    tf.random.set_seed(7)
    found = take_all(coordinator, PIPELINES[name], len(expected))
    assert len(loaded) == 1
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


def test_an_element_that_fails_is_told_and_the_next_one_comes(coordinate, loaded):
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
    assert len(loaded) == 1


def test_threads_that_read_ahead_know_the_worker(coordinate, loaded):
    _, coordinator = coordinate(2, 1)
    index = tf.distribute.coordinator.experimental_get_current_worker_index

    def dataset_fn():
        return tf.data.Dataset.range(5).map(lambda x: index()).prefetch(2).repeat()

    iterator = iter(coordinator.create_per_worker_dataset(dataset_fn))
    take = tf.function(lambda iterator: (next(iterator), index()))
    for inside, worker in take_until_all_have(coordinator, take, iterator, range(2)):
        assert inside == worker
    assert len(loaded) == 2


def test_a_dataset_is_in_a_worker_once_with_its_cache(coordinate, loaded):
    _, coordinator = coordinate(1, 1)
    dataset = tf.data.Dataset.range(20).shuffle(20).batch(20).cache()
    per_worker = coordinator.create_per_worker_dataset(dataset)
    orders = []
    for _ in range(3):
        iterator = iter(per_worker).values[0].get()
        orders += [batch.numpy().tolist() for batch in iterator]
    assert len(loaded) == 1 and orders[0] == orders[1] == orders[2] != sorted(orders[0])


@pytest.mark.parametrize("is_used", [False, True])
def test_workers_hold_no_iterations_that_have_gone(coordinate, monkeypatch, is_used):
    held = []
    monkeypatch.setattr(HeldData, "__init__", lambda self, init=HeldData.__init__: (init(self), held.append(self))[0])
    _, coordinator = coordinate(1, 1)
    for _ in range(3):
        iterator = iter(coordinator.create_per_worker_dataset(lambda: rows().repeat())).values[0].get()
        if is_used:
            next(iterator)
    del iterator
    gc.collect()
    assert held
    wait_until(lambda: not any(data._iterations or data._sources or data._elements for data in held))


def test_data_are_released_soon_and_not_in_a_garbage_collection(coordinate, rays, monkeypatch):
    held = []
    monkeypatch.setattr(HeldData, "__init__", lambda self, init=HeldData.__init__: (init(self), held.append(self))[0])
    _, coordinator = coordinate(1, 1)
    iterator = iter(coordinator.create_per_worker_dataset(lambda: rows().repeat())).values[0].get()
    next(iterator)
    assert any(data._iterations and data._sources for data in held)
    with rays[0]._threads._shutdown_lock:  # As if they were freed while a call is sent.
        del iterator
        gc.collect()
        assert any(data._iterations and data._sources for data in held)
    wait_until(lambda: not any(data._iterations or data._sources for data in held))


def test_threads_take_of_one_worker(coordinate):
    _, coordinator = coordinate(1, 1)
    iterators = [
        iter(coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.range(300))).values[0].get()
        for _ in range(4)
    ]
    found = [[] for _ in iterators]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [
            threading.Thread(target=lambda take=take, of=of: of.extend(int(x) for x in take), daemon=True)
            for take, of in zip(iterators, found, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
    finally:
        sys.setswitchinterval(before)
    assert found == [list(range(300))] * 4


def test_workers_know_which_ones_they_are_in_datasets(coordinate, loaded):
    _, coordinator = coordinate(3, 1)
    index = tf.distribute.coordinator.experimental_get_current_worker_index

    def dataset_fn():
        mine = index()
        return tf.data.Dataset.range(2).map(lambda x: (x, mine, index())).repeat()

    iterator = iter(coordinator.create_per_worker_dataset(dataset_fn))

    @tf.function
    def take(iterator):
        return next(iterator), index()

    for (_, before, inside), worker in take_until_all_have(coordinator, take, iterator, range(3)):
        assert before == inside == worker
    assert len(loaded) == 3


def test_functions_have_what_the_program_has_set(coordinate, loaded, monkeypatch, tmp_path):
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
    assert len(loaded) == 1


def test_autograph_reads_functions_whose_files_are_not_there(tmp_path):
    file = tmp_path / "gone.py"
    file.write_text(
        "import tfdist_jax.compat.tensorflow as tf\ndef halve(x):\n    if x % 2 == 0:\n        x = x // 2\n    return x\n"
    )
    module = types.ModuleType("gone")
    exec(compile(file.read_text(), str(file), "exec"), vars(module))
    portable = PortablePlan.of(tf.data.Dataset.range(4).map(module.halve)._plan)
    file.unlink()
    linecache.checkcache(str(file))
    assert list(tf.data.Dataset(portable.load()).as_numpy_iterator()) == [0, 1, 1, 3]


def _with_python_by_another_name():
    call = tf.numpy_function
    return tf.data.Dataset.range(9).map(lambda x: call(lambda v: v + 1, [x], tf.int64))


def _with_numpys_random_numbers():
    return tf.data.Dataset.range(9).map(lambda x: x + 1 + np.random.randint(1))


def _with_pythons_random_numbers():
    numbers = random.Random(0)
    return tf.data.Dataset.range(9).map(lambda x: x + 1 + int(numbers.random() * 0))


def _with_file():
    file = io.StringIO("x")
    return tf.data.Dataset.range(9).map(lambda x: x + 1 + 0 * len(file.getvalue()))


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
    "by `tf.py_function`": _with_python_by_another_name,
    "Python's or NumPy's": _with_numpys_random_numbers,
    "of Python's": _with_pythons_random_numbers,
    "open file": _with_file,
    "variable": _with_variable,
    "table": _with_table,
    "Keras": _with_layer,
    "iterator": _with_iterator,
    "copied": _with_lock,
    "files": _in_files,
    "other things than tensors": lambda: tf.data.Dataset.range(1, 9).window(3),
}


@pytest.mark.parametrize("reason", STAYING)
def test_what_shares_something_with_the_program_stays(coordinate, reason, reasons, loaded, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    _, coordinator = coordinate(1, 1)
    iterator = iter(coordinator.create_per_worker_dataset(STAYING[reason]))

    @tf.function(autograph=False)
    def take(iterator):
        element = next(iterator)
        return next(iter(element)) if isinstance(element, tf.data.Dataset) else element

    assert coordinator.schedule(take, args=(iterator,)).fetch() == 1
    assert loaded == [] and len(reasons()) == 1 and reason in reasons()[0]


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
    wait_until(lambda: len(data._elements) <= 2 and len(data._iterations) == 2)
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
    assert fetched == [0]
    count = 0
    while count < MANY and len(fetched) == 1:  # Its own worker may have taken all of them.
        for _ in range(20):
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()
        count += 20
    assert float(total) == 3 * count and len(fetched) > 1


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
    lock, take, goes, numbers_taken = threading.Lock(), HeldData.take, [], collections.Counter()

    def observed(self, iteration):
        taken = take(self, iteration)
        ray: FakeRay = rays[-1]
        thread = threading.current_thread()
        index = next(i for i in range(2) if thread in ray.threads_of("worker", i))
        with lock:
            numbers_taken[index] += 1
            if is_now := numbers_taken.total() == moment:
                goes.append((index, numbers_taken[index] - 1))  # What it has taken last is lost with it.
        if is_now:
            ray.actors["worker", index].end()
            ray.start("worker", index)
        return taken

    monkeypatch.setattr(HeldData, "take", observed)
    current_worker = tf.distribute.coordinator.experimental_get_current_worker_index

    @tf.function
    def step(iterator):
        number, x = next(iterator)
        total.assign_add(tf.reduce_sum(x))
        return number, current_worker()

    iterator = iter(coordinator.create_per_worker_dataset(lambda: rows(MANY)))
    numbers, anew = {0: [], 1: []}, 0
    while not anew:  # The worker that comes back may be slower than the other one.
        results = [coordinator.schedule(step, args=(iterator,)) for _ in range(30)]
        coordinator.join()
        for number, worker in (result.fetch() for result in results):
            numbers[int(worker)].append(int(number))
        ((went, before),) = goes
        anew = len(numbers[went]) - before
    assert float(total) == 3 * sum(map(len, numbers.values()))
    assert sorted(numbers[went]) == sorted([*range(before), *range(anew)])
    assert sorted(numbers[1 - went]) == [*range(len(numbers[1 - went]))]
    assert coordinator.statistics.retries == 1
