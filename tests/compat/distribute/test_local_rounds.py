"""`ParameterServerStrategy(sync_every=...)`: workers train copies of their own, which are put together after some steps of each."""

import copy
import gc
import threading
import time
import weakref

import keras
import numpy as np
import pytest
from digits import NUM_TRAINED, DigitsTraining

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax._program import BEFORE_RUN

worker_index = tf.distribute.coordinator.experimental_get_current_worker_index
OUTER = {"mean": lambda: None, "DiLoCo": lambda: keras.optimizers.SGD(0.5, momentum=0.8, nesterov=True)}


@pytest.fixture(params=["threads", "messages"])
def engine(request):
    return request.param


def make_batches(count):
    return np.random.RandomState(1).randn(count, 6, 4).astype("f4")


class Training:
    """A model of one layer, and its step, which returns which worker has made it."""

    def __init__(self, strategy, make_optimizer, *, is_compiled=True):
        random = np.random.RandomState(0)
        with strategy.scope():
            self.weights = [tf.Variable(random.randn(4, 3).astype("f4")), keras.Variable(np.zeros(3, "f4"))]
            self.seen = tf.Variable(0.0, trainable=False)
            self.optimizer = make_optimizer()
        self.strategy = strategy
        self.step = tf.function(self._step if is_compiled else self._as_python)

    def train(self, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.tanh(x @ self.weights[0] + self.weights[1]) - 0.5) ** 2)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.weights), self.weights, strict=True))
        self.seen.assign_add(1.0)

    def _step(self, x):
        self.strategy.run(self.train, args=(x,))
        return worker_index()

    def _as_python(self, x):
        if tf.reduce_sum(x) > -1e6:
            self.train(x)
        return worker_index()

    @property
    def values(self):
        return [np.asarray(v) for v in self.weights]


def train_alone(make_optimizer):
    """Return a training of one worker."""
    return Training(tf.distribute.OneDeviceStrategy("/cpu:0"), make_optimizer)


def train_in_rounds(of_workers, steps, make_optimizer, outer):
    """Return what local SGD makes of batches, of which each worker has got some."""
    workers = [train_alone(make_optimizer) for _ in of_workers]
    common = [keras.Variable(value) for value in workers[0].values]
    for start in range(0, max(map(len, of_workers)), steps):
        ready = []
        for worker, batches in zip(workers, of_workers, strict=True):
            for weight, value in zip(worker.weights, common, strict=True):
                weight.assign(np.asarray(value))
            for x in batches[start : start + steps]:
                worker.train(tf.constant(x))
            ready += [worker.values] if batches[start:] else []
        means = [np.mean(each, axis=0) for each in zip(*ready, strict=True)]
        if outer is None:
            for value, mean in zip(common, means, strict=True):
                value.assign(mean)
        else:
            outer.apply([np.asarray(value) - mean for value, mean in zip(common, means, strict=True)], common)
    return [np.asarray(value) for value in common], workers


@pytest.mark.one_in(3)
@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("outer", OUTER)
def test_local_rounds_are_those_of_workers_that_train_alone(coordinate, outer, is_compiled):
    make_optimizer = lambda: keras.optimizers.Adam(0.05)
    strategy, coordinator = coordinate(workers=3, sync_every=4, outer_optimizer=OUTER[outer]())
    training = Training(strategy, make_optimizer, is_compiled=is_compiled)
    batches = make_batches(40)  # The last round is not complete.
    results = [coordinator.schedule(training.step, args=(tf.constant(x),)) for x in batches]
    coordinator.join()
    made_by = [int(result.fetch()) for result in results]
    of_workers = [[x for x, who in zip(batches, made_by, strict=True) if who == i] for i in range(3)]
    assert all(len(each) >= 12 for each in of_workers)
    expected, alone = train_in_rounds(of_workers, 4, make_optimizer, OUTER[outer]())
    for found, value in zip(training.values, expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6)
    told = coordinator.statistics
    assert (told.rounds, told.closures, told.dropped, float(training.seen)) == (4, 40, 0, 40)
    # Workers keep what their optimizers do; a checkpoint has the mean.
    ready = [worker for worker, batches in zip(alone, of_workers, strict=True) if len(batches) > 12]
    moments = np.mean([np.asarray(worker.optimizer.variables[2]) for worker in ready], axis=0)
    np.testing.assert_allclose(training.optimizer.variables[2].numpy(), moments, rtol=1e-4, atol=1e-6)
    assert int(training.optimizer.iterations) == max(map(len, of_workers))


def test_rounds_of_single_sgd_steps_are_steps_on_all_batches(coordinate):
    make_optimizer = lambda: keras.optimizers.SGD(0.5)
    strategy, coordinator = coordinate(workers=3, sync_every=1)
    training, alone = Training(strategy, make_optimizer), train_alone(make_optimizer)
    batches = make_batches(12)
    for x in batches:
        coordinator.schedule(training.step, args=(tf.constant(x),))
    coordinator.join()
    for i in range(0, 12, 3):
        alone.train(tf.constant(np.concatenate(batches[i : i + 3])))
    for found, value in zip(training.values, alone.values, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6)


def test_a_function_sees_what_its_worker_has_made_and_others_see_the_mean(coordinate):
    strategy, coordinator = coordinate(workers=2, sync_every=2)
    with strategy.scope():
        v = tf.Variable(0.0)
        optimizer = keras.optimizers.SGD(1.0)

    @tf.function
    def step():
        before = v + 0.0
        optimizer.apply_gradients([(-(tf.cast(worker_index(), tf.float32) + 1), v)])
        return before, v + 0.0

    seen = [coordinator.schedule(step) for _ in range(4)]
    coordinator.join()
    assert sorted(tuple(map(float, result.fetch())) for result in seen) == [(0, 1), (0, 2), (1, 2), (2, 4)]
    assert float(v) == 3
    v.assign(10.0)
    assert sorted(float(coordinator.schedule(step).fetch()[0]) for _ in range(2))[0] == 10
    coordinator.join()
    assert 11 <= float(v) <= 12 + 2 and coordinator.statistics.rounds == 2


def test_what_the_coordinator_assigns_is_what_all_workers_go_on_from(coordinate):
    strategy, coordinator = coordinate(workers=3, sync_every=5)
    training = Training(strategy, lambda: keras.optimizers.SGD(0.0))
    for x in make_batches(6):
        coordinator.schedule(training.step, args=(tf.constant(x),))
    coordinator.join()
    optimizer = training.optimizer
    optimizer.learning_rate = 0.5
    optimizer.iterations.assign(100)  # Of which workers have their own.
    training.weights[1].assign(np.ones(3, "f4"))
    look = tf.function(lambda: (optimizer.learning_rate + 0.0, optimizer.iterations + 0, training.weights[1] + 0.0))
    for result in [coordinator.schedule(look) for _ in range(9)]:
        rate, steps, value = result.fetch()
        assert (float(rate), int(steps), value.tolist()) == (0.5, 100, [1, 1, 1])


@pytest.mark.filterwarnings("ignore:A function on servers calls Python")
def test_workers_train_their_copies_side_by_side(coordinate, meeting):
    strategy, coordinator = coordinate(workers=2, sync_every=4)
    training, meet = Training(strategy, lambda: keras.optimizers.SGD(0.5)), meeting(2)
    step = tf.function(lambda x: training.train(meet(x)))
    for x in make_batches(8):
        coordinator.schedule(step, args=(tf.constant(x),))
    coordinator.join()
    assert coordinator.statistics.rounds == 1


def test_the_coordinators_own_steps_change_what_all_have_in_common(coordinate):
    make_optimizer = lambda: keras.optimizers.SGD(0.5, momentum=0.5)
    strategy, coordinator = coordinate(workers=3, sync_every=1)
    training, alone = Training(strategy, make_optimizer), train_alone(make_optimizer)
    batches = make_batches(9)
    training.train(tf.constant(batches[0]))
    for x in batches[1:7]:
        coordinator.schedule(training.step, args=(tf.constant(x),))
    coordinator.join()
    training.train(tf.constant(batches[7]))
    tf.function(training.train)(tf.constant(batches[8]))
    for each in (batches[:1], batches[1:4], batches[4:7], batches[7:8], batches[8:]):
        alone.train(tf.constant(np.concatenate(each)))
    for found, value in zip(training.values, alone.values, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6)


def test_parts_of_tables_have_copies_too(coordinate):
    partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
    strategy, coordinator = coordinate(workers=2, partitioner=partitioner, sync_every=1)
    with strategy.scope():
        table = tf.Variable(np.arange(12, dtype="f4").reshape(6, 2))
        optimizer = keras.optimizers.SGD(1.0)

    @tf.function
    def step(rows):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, rows))
        optimizer.apply_gradients(zip(tape.gradient(loss, table.variables), table.variables, strict=True))

    for rows in ([0, 5], [0, 3]):
        coordinator.schedule(step, args=(tf.constant(rows),))
    coordinator.join()
    change = np.arange(12).reshape(6, 2) - tf.convert_to_tensor(table).numpy()
    assert change[:, 0].tolist() == [1, 0, 0, 0.5, 0, 0.5] and table.variables[0].device.startswith("/job:ps")


def test_copies_of_variables_are_trained_like_these(coordinate):
    strategy, coordinator = coordinate(workers=2, sync_every=1)
    with strategy.scope():
        twins = [copy.deepcopy(v) for v in (tf.Variable(1.0), keras.Variable(1.0))]
        optimizer = keras.optimizers.SGD(1.0)
    step = tf.function(lambda x: optimizer.apply_gradients([(x, v) for v in twins]))
    for x in (0.5, 1.0):
        coordinator.schedule(step, args=(tf.constant(x),))
    coordinator.join()
    assert [float(v) for v in twins] == [0.25, 0.25]


def test_how_workers_train_copies_is_told_before_they_do(coordinate):
    strategy, coordinator = coordinate(workers=2, sync_every=7)
    training, told = Training(strategy, lambda: keras.optimizers.SGD(0.5)), []
    before = BEFORE_RUN.set(lambda step, mesh, args: told.append(step))
    try:
        coordinator.schedule(training.step, args=(tf.constant(make_batches(1)[0]),))
        coordinator.join()
    finally:
        BEFORE_RUN.reset(before)
    (explanation,) = told
    assert "after 7 function(s) of each (`sync_every=7`)" in str(explanation) and explanation.sync_every == 7


def test_functions_that_change_no_copies_take_no_part(coordinate):
    strategy, coordinator = coordinate(workers=2, sync_every=2)
    training = Training(strategy, lambda: keras.optimizers.SGD(0.5))
    look = tf.function(lambda: training.seen.assign_add(tf.reduce_sum(training.weights[0]) * 0 + 1.0))
    for x in make_batches(8):
        coordinator.schedule(training.step, args=(tf.constant(x),))
        for _ in range(3):
            coordinator.schedule(look)
    coordinator.join()
    assert (coordinator.statistics.rounds, float(training.seen)) == (2, 32)


@pytest.mark.filterwarnings("ignore:A function on servers calls Python")
def test_a_program_that_fails_has_trained_nothing_and_training_goes_on(coordinate):
    strategy, coordinator = coordinate(workers=2, sync_every=3)
    training = Training(strategy, lambda: keras.optimizers.SGD(0.5))

    @tf.function
    def fail(x):
        training.train(x)
        tf.debugging.assert_less(tf.reduce_sum(x), -1e6)

    batches = make_batches(9)
    before = training.values
    with pytest.raises(tf.errors.InvalidArgumentError):
        coordinator.schedule(fail, args=(tf.constant(batches[0]),))
        coordinator.join()
    for found, value in zip(training.values, before, strict=True):
        np.testing.assert_array_equal(found, value)
    for x in batches[1:]:
        coordinator.schedule(training.step, args=(tf.constant(x),))
    coordinator.join()
    assert coordinator.statistics.rounds == 2 and int(training.optimizer.iterations) in (4, 5)


def make_sgd(strategy):
    """Return a variable and a step that adds 1 to it."""
    with strategy.scope():
        v, optimizer = tf.Variable(0.0), keras.optimizers.SGD(1.0)

    @tf.function
    def step():
        optimizer.apply_gradients([(tf.constant(-1.0), v)])

    return v, step


@pytest.mark.parametrize("steps_before", [0, 1])
def test_what_a_function_has_trained_before_it_fails_stays_and_is_seen(coordinate, steps_before):
    strategy, coordinator = coordinate(workers=1, sync_every=5)
    v, step = make_sgd(strategy)

    @tf.function
    def train_both(iterator):
        for _ in range(3):
            next(iterator)
            step()

    iterator = iter(coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.range(2)))
    for _ in range(steps_before):
        coordinator.schedule(step)
    coordinator.schedule(train_both, args=(iterator,))
    with pytest.raises(tf.errors.OutOfRangeError):
        coordinator.join()
    assert float(v) == steps_before + 2
    coordinator.schedule(step)
    coordinator.join()
    assert float(v) == steps_before + 3


def test_no_step_is_lost_where_another_thread_joins(coordinate):
    # One worker: the mean of several would be less than all their steps.
    strategy, coordinator = coordinate(workers=1, sync_every=1000)
    w, step = make_sgd(strategy)
    is_over = threading.Event()
    count = 0

    def join():
        nonlocal count
        while not is_over.is_set():
            coordinator.join()
            count += 1

    thread = threading.Thread(target=join)
    thread.start()
    for _ in range(300):
        coordinator.schedule(step)
        time.sleep(0.0005)
    is_over.set()
    thread.join()
    coordinator.join()
    assert float(w) == 300 and count > 10


def test_what_is_assigned_while_copies_are_put_together_stays(coordinate):
    strategy, coordinator = coordinate(workers=1, sync_every=10)
    v, step = make_sgd(strategy)
    w, other = make_sgd(strategy)
    for each in (step, other):
        coordinator.schedule(each).fetch()

    copies = strategy._copies
    snapshot = copies.snapshot()
    (own,) = copies.fetch(snapshot, [0]).values()
    v.assign(7.0)
    copies.replace(snapshot, own)
    assert (float(v), float(w)) == (7, 1)


def test_a_round_that_is_not_complete_ends_where_done_tells_so(coordinate):
    strategy, coordinator = coordinate(workers=1, sync_every=10)
    v, step = make_sgd(strategy)
    for _ in range(3):
        coordinator.schedule(step)
    while not coordinator.done():
        time.sleep(0.01)
    assert float(v) == 3 and coordinator.statistics.rounds == 1


@pytest.mark.parametrize("is_built", [True, False])
def test_an_outer_optimizer_changes_variables_that_are_trained_later_too(coordinate, is_built):
    outer = keras.optimizers.SGD(1.0, momentum=0.5)
    strategy, coordinator = coordinate(workers=1, sync_every=1, outer_optimizer=outer)
    (a, first), found = make_sgd(strategy), []
    if is_built:  # For one of the two that are there.
        outer.build([a])
        b, second = make_sgd(strategy)
    for step in (first, first):
        coordinator.schedule(step)
    coordinator.join()
    if not is_built:
        b, second = make_sgd(strategy)
    for step in (second, second, first):
        coordinator.schedule(step)
        coordinator.join()
        found.append((float(a), float(b)))
    # With momentum: 1, then 1 + 1.5, then 2.5 + 1.75.
    assert found == [(2.5, 1), (2.5, 2.5), (4.25, 2.5)]


def test_training_goes_on_exactly_with_the_outer_optimizers_state(coordinate, tmp_path):
    def make():
        outer = keras.optimizers.SGD(1.0, momentum=0.5)
        _, coordinator = made = coordinate(workers=1, sync_every=1, outer_optimizer=outer)
        v, step = make_sgd(made[0])

        def train():
            for _ in range(3):
                coordinator.schedule(step)
            coordinator.join()
            return float(v)

        return train, tf.train.Checkpoint(v=v, outer=outer)

    train, checkpoint = make()
    train()
    path = checkpoint.save(str(tmp_path / "checkpoint"))
    expected = train()
    train, checkpoint = make()
    checkpoint.restore(path)
    assert train() == expected


def test_weights_may_be_changed_wherever_optimizers_have_trained_them(coordinate):
    strategy, coordinator = coordinate(workers=1, sync_every=10)
    v, step = make_sgd(strategy)
    make_clip = lambda: tf.function(lambda: v.assign(tf.clip_by_value(v, -5.0, 2.0)))
    with pytest.raises(NotImplementedError, match="no optimizer's gradients do so before"):
        coordinator.schedule(make_clip())
        coordinator.join()
    for _ in range(4):
        coordinator.schedule(step)
    coordinator.join()
    coordinator.schedule(make_clip())  # In a round in which no optimizer has trained it yet.
    coordinator.join()
    assert float(v) == 2


@pytest.mark.parametrize("options", [{}, {"backup_workers": 0}, {"sync_every": 2}, {"sync_every": 2, "outer": True}])
def test_threads_end_with_the_strategy(options):
    def train():
        outer = {"outer_optimizer": keras.optimizers.SGD(1.0)} if "outer" in options else {}
        given = {name: value for name, value in options.items() if name != "outer"}
        strategy = tf.distribute.ParameterServerStrategy(**given, **outer)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        v, step = make_sgd(strategy)
        table = coordinator.create_per_worker_resource(lambda: v.dtype)
        for _ in range(3):
            coordinator.schedule(step)
        coordinator.join()
        assert table.values[0].fetch() == tf.float32
        return [weakref.ref(each) for each in (strategy, coordinator._native, v)]

    before = set(threading.enumerate())
    refs = train()
    deadline = time.monotonic() + 10
    while any(ref() is not None for ref in refs) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.05)
    assert [ref() for ref in refs[:2]] == [None, None]
    assert not {thread for thread in threading.enumerate() if thread.name.startswith("worker")} - before


@pytest.mark.parametrize("is_compiled", [True, False])
def test_sums_in_trainable_variables_are_refused(coordinate, is_compiled):
    strategy, coordinator = coordinate(sync_every=2)
    with strategy.scope():
        total = tf.Variable(0.0)

    @tf.function
    def add(x):
        if is_compiled or x > 0:
            total.assign_add(x)

    with strategy.scope():
        add(tf.constant(2.0))
    with pytest.raises(NotImplementedError, match=r"no optimizer's gradients do so before.*trainable=False"):
        coordinator.schedule(add, args=(tf.constant(1.0),))
        coordinator.join()
    assert float(total) == 2


@pytest.mark.parametrize("make", [lambda: tf.Variable(1.0), lambda: tf.Variable(1.0, trainable=False)])
def test_variables_without_copies_are_refused(coordinate, make):
    strategy, coordinator = coordinate(sync_every=2)
    v = make()
    with strategy.scope():
        v = v if v.trainable else make()
        optimizer = keras.optimizers.SGD(1.0)
    with pytest.raises(NotImplementedError, match="of which workers have no copies of their own"):
        coordinator.schedule(tf.function(lambda: optimizer.apply_gradients([(tf.constant(1.0), v)])))
        coordinator.join()


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"sync_every": 0}, ValueError, "`sync_every` must be a whole number, 1 or more, got 0"),
        ({"sync_every": 2.0}, TypeError, "`sync_every` must be a whole number"),
        ({"sync_every": 2, "backup_workers": 0}, ValueError, "Give one of them"),
        ({"sync_every": 2, "max_staleness": 0}, ValueError, "Give one of them"),
        ({"outer_optimizer": keras.optimizers.SGD(1.0)}, ValueError, "`sync_every` functions of each worker"),
        ({"sync_every": 2, "outer_optimizer": "sgd"}, TypeError, "must be a Keras optimizer"),
    ],
)
def test_options_of_local_rounds_are_checked_when_the_strategy_is_made(coordinate, options, error, text):
    with pytest.raises(error, match=text):
        coordinate(workers=2, **options)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("outer", OUTER)
def test_digits_are_learned_by_workers_with_copies(coordinate, outer):
    strategy, coordinator = coordinate(workers=4, sync_every=5, outer_optimizer=OUTER[outer]())
    digits = DigitsTraining(strategy, 5e-3)
    step, random = tf.function(digits.train), np.random.RandomState(0)
    for _ in range(1600):
        rows = random.randint(0, NUM_TRAINED, 16)
        coordinator.schedule(step, args=(tf.constant(digits.x[rows]), tf.constant(digits.y[rows])))
    coordinator.join()
    assert digits.evaluate(coordinator) >= 0.95
    told = coordinator.statistics
    assert int(digits.accuracy.count) == 297
    assert told.rounds == 80 and int(digits.optimizer.iterations) == 400
