"""`ParameterServerStrategy(backup_workers=...)`: workers train in rounds, and optimizers apply the mean of what comes first."""

import threading
import time

import jax
import keras
import numpy as np
import pytest
from digits import DigitsTraining
from environment import LIMIT_S

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax._program import BEFORE_RUN

OPTIMIZERS = {
    "SGD": lambda: keras.optimizers.SGD(0.5),
    "momentum": lambda: keras.optimizers.SGD(0.2, momentum=0.9, nesterov=True),
    "clipped Adam": lambda: keras.optimizers.Adam(0.05, global_clipnorm=0.1),
    "accumulating": lambda: keras.optimizers.SGD(0.5, gradient_accumulation_steps=2),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5), initial_scale=8.0),
}


@pytest.fixture(params=["threads", "messages"])
def engine(request):
    return request.param


def make_batches(count, rows=6):
    return np.random.RandomState(1).randn(count, rows, 4).astype("f4")


class Training:
    """A model of one layer, and its step."""

    def __init__(self, strategy, make_optimizer=OPTIMIZERS["SGD"], *, is_compiled=True):
        random = np.random.RandomState(0)
        with strategy.scope():
            self.weights = [keras.Variable(random.randn(4, 3).astype("f4")), keras.Variable(np.zeros(3, "f4"))]
            self.seen = tf.Variable(0.0, trainable=False)
            self.optimizer = make_optimizer()
        self.strategy = strategy
        self.look = tf.function(lambda: tf.reduce_sum(self.weights[0]))
        self.step = tf.function(self._step) if is_compiled else tf.function(self._plainly)

    def replica(self, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.tanh(x @ self.weights[0] + self.weights[1]) - 0.5) ** 2)
            scaled = self.optimizer.scale_loss(loss)
        grads = tape.gradient(scaled, self.weights)
        self.optimizer.apply_gradients(zip(grads, self.weights, strict=True))
        self.seen.assign_add(tf.cast(tf.shape(x)[0], tf.float32))
        return loss

    def _step(self, x):
        return self.strategy.run(self.replica, args=(x,))

    def _plainly(self, x):
        loss = tf.constant(0.0)
        if tf.reduce_sum(x) > -1e6:  # It changes variables, and so the function runs as Python.
            loss = self.replica(x)
        return loss

    @property
    def values(self):
        return [np.asarray(v) for v in [*self.weights, *self.optimizer.variables]]


def assert_same(found, expected, **options):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, **{"rtol": 1e-5, "atol": 1e-6, **options})


def train_on_one_device(batches, make_optimizer=OPTIMIZERS["SGD"]):
    training = Training(tf.distribute.OneDeviceStrategy("/cpu:0"), make_optimizer)
    losses = [float(training.step(tf.constant(np.concatenate(each)))) for each in batches]
    return training, losses


@pytest.mark.one_in(3)
@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_rounds_of_all_workers_are_steps_on_all_their_batches(coordinate, optimizer, is_compiled):
    batches = make_batches(11)
    strategy, coordinator = coordinate(workers=3, backup_workers=0)
    training = Training(strategy, OPTIMIZERS[optimizer], is_compiled=is_compiled)
    results = [coordinator.schedule(training.step, args=(tf.constant(x),)) for x in batches]
    coordinator.join()  # The last round is not complete.
    losses = [float(result.fetch()) for result in results]
    rounds = [range(3), range(3, 6), range(6, 9), range(9, 11)]
    other, expected = train_on_one_device([batches[each] for each in rounds], OPTIMIZERS[optimizer])
    np.testing.assert_allclose([np.mean([losses[i] for i in each]) for each in rounds], expected, rtol=1e-5)
    assert_same(training.values, other.values)
    told = coordinator.statistics
    assert (told.rounds, told.dropped, told.closures) == (4, 0, 11) and float(training.seen) == 66


def test_equal_trainings_in_rounds_have_equal_bits(coordinate):
    found = []
    for _ in range(2):
        strategy, coordinator = coordinate(workers=4, backup_workers=0)
        training = Training(strategy, OPTIMIZERS["clipped Adam"])
        for x in make_batches(40):
            coordinator.schedule(training.step, args=(tf.constant(x),))
        coordinator.join()
        found.append(training.values)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.fixture
def gate():
    """A function that returns its argument, but waits where this is 99 until `opens` is set."""
    opens = threading.Event()

    def wait(x):
        if float(x) == 99:
            opens.wait(LIMIT_S)
        return x

    through = lambda x: jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
    through.opens = opens
    yield through
    opens.set()


@pytest.mark.filterwarnings("ignore:A function on servers calls Python")
def test_a_round_waits_for_no_late_worker_whose_gradient_is_dropped(coordinate, gate):
    strategy, coordinator = coordinate(workers=3, backup_workers=1)
    training = Training(strategy)

    @tf.function
    def step(x, held_up):
        # What waits changes nothing of the gradient.
        return strategy.run(training.replica, args=(x + 0 * gate(held_up),))

    batches = make_batches(5)
    waiting = [99.0, 0.0, 0.0, 0.0, 0.0]
    results = [
        coordinator.schedule(step, args=(tf.constant(x), tf.constant(held_up, "float32")))
        for x, held_up in zip(batches, waiting, strict=True)
    ]
    for result in results[1:]:
        result.fetch()
    assert not coordinator.done()
    before = coordinator.statistics
    gate.opens.set()
    coordinator.join()
    assert np.isfinite(results[0].fetch())
    other, _ = train_on_one_device([batches[1:3], batches[3:]])
    assert_same(training.values, other.values)
    assert (before.rounds, before.dropped) == (2, 0)
    told = coordinator.statistics
    assert (told.rounds, told.dropped, told.closures) == (2, 1, 5) and "2 rounds, 1 gradients dropped" in str(told)
    # What is no gradient counts in any case.
    assert float(training.seen) == 30


def test_each_gradient_is_applied_or_dropped(coordinate):
    strategy, coordinator = coordinate(workers=4, backup_workers=2)
    training = Training(strategy)
    for x in make_batches(60):
        coordinator.schedule(training.step, args=(tf.constant(x),))
    coordinator.join()
    told = coordinator.statistics
    # The last round may have one gradient.
    assert told.closures == 60 and 60 - told.dropped in (2 * told.rounds, 2 * told.rounds - 1)
    assert int(training.optimizer.iterations) == told.rounds and float(training.seen) == 360


@pytest.mark.filterwarnings("ignore:A function on servers calls Python")
def test_no_round_waits_for_what_has_failed_and_training_goes_on(coordinate):
    strategy, coordinator = coordinate(workers=2, backup_workers=0)
    training = Training(strategy)

    @tf.function
    def fail(x):
        strategy.run(training.replica, args=(x,))
        tf.debugging.assert_less(tf.reduce_sum(x), -1e6)  # The program calls Python.

    batches = make_batches(3)
    coordinator.schedule(training.step, args=(tf.constant(batches[0]),))
    with pytest.raises(tf.errors.InvalidArgumentError):
        coordinator.schedule(fail, args=(tf.constant(batches[1]),))
        coordinator.join()
    # Nothing of it is applied, but what others have computed.
    other, _ = train_on_one_device([batches[:1]])
    assert_same(training.values, other.values)
    for x in batches[1:]:
        coordinator.schedule(training.step, args=(tf.constant(x),))
    coordinator.join()
    other, _ = train_on_one_device([batches[:1], batches[1:]])
    assert_same(training.values, other.values)
    assert coordinator.statistics.rounds == 2


@pytest.mark.filterwarnings("ignore:A function on servers calls Python")
def test_the_end_of_data_is_told_whatever_a_function_counts_before(coordinate):
    strategy, coordinator = coordinate(workers=1, backup_workers=0)
    training = Training(strategy)
    with strategy.scope():
        calls = tf.Variable(0.0)  # Trainable, if by no optimizer.

    @tf.function
    def step(iterator):
        calls.assign_add(1.0)
        strategy.run(training.replica, args=(next(iterator),))

    batches = make_batches(2)
    make = lambda: tf.data.Dataset.from_tensor_slices(batches)
    iterator = iter(coordinator.create_per_worker_dataset(make))
    with pytest.raises(tf.errors.OutOfRangeError):
        for _ in range(3):
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()
    assert float(calls) == 3
    other, _ = train_on_one_device([batches[:1], batches[1:]])
    assert_same(training.values, other.values)


def test_a_round_that_is_not_complete_ends_where_done_tells_so(coordinate):
    strategy, coordinator = coordinate(workers=2, backup_workers=0)
    training = Training(strategy)
    batches = make_batches(3)
    for x in batches:
        coordinator.schedule(training.step, args=(tf.constant(x),))
    while not coordinator.done():
        time.sleep(0.01)
    other, _ = train_on_one_device([batches[:2], batches[2:]])
    assert_same(training.values, other.values)


def test_functions_without_gradients_take_no_part(coordinate):
    strategy, coordinator = coordinate(workers=2, backup_workers=0)
    training = Training(strategy)
    look = tf.function(lambda: training.seen.assign_add(1.0))
    batches = make_batches(4)
    for x in batches:
        coordinator.schedule(training.step, args=(tf.constant(x),))
        coordinator.schedule(look)
    coordinator.join()
    other, _ = train_on_one_device([batches[:2], batches[2:]])
    assert_same(training.values, other.values)
    assert float(training.seen) == 28 and coordinator.statistics.rounds == 2


def test_the_coordinators_own_steps_are_applied_at_once(coordinate):
    strategy, coordinator = coordinate(workers=2, backup_workers=0)
    training = Training(strategy)
    batches = make_batches(5)
    with strategy.scope():  # As a worker runs it.
        training.step(tf.constant(batches[0]))
    for x in batches[1:3]:
        coordinator.schedule(training.step, args=(tf.constant(x),))
    coordinator.join()
    with strategy.scope():
        training.step(tf.constant(batches[3]))
    training.step.get_concrete_function(tf.constant(batches[0]))(tf.constant(batches[4]))
    other, _ = train_on_one_device([batches[:1], batches[1:3], batches[3:4], batches[4:]])
    assert_same(training.values, other.values)
    assert coordinator.statistics.rounds == 1


def test_several_optimizers_have_means_of_their_own_gradients(coordinate):
    strategy, coordinator = coordinate(workers=2, backup_workers=0)
    with strategy.scope():
        a, b, c = (keras.Variable(1.0) for _ in range(3))
        first, second = keras.optimizers.SGD(1.0), keras.optimizers.SGD(1.0)
        first.build([a, b])

    def step(x, *, both):
        first.apply_gradients([(x, a), (2 * x if both else None, b)])
        if both:
            second.apply_gradients([(x, c)])

    for x, both in [(0.25, True), (0.5, False)]:
        coordinator.schedule(tf.function(lambda x, both=both: step(x, both=both)), args=(tf.constant(x),))
    coordinator.join()
    # A gradient that one function does not have is zero; of an optimizer that it does not use, there is none.
    assert [float(v) for v in (a, b, c)] == [1 - 0.375, 1 - 0.25, 0.75]
    assert (int(first.iterations), int(second.iterations)) == (1, 1)


@pytest.mark.parametrize("optimizer", [keras.optimizers.SGD, keras.optimizers.Adam])
def test_sparse_gradients_of_a_round_are_those_of_all_rows(coordinate, optimizer):
    def make(strategy):
        with strategy.scope():
            table = tf.Variable(np.arange(12, dtype="f4").reshape(6, 2))
            return table, optimizer(0.5)

    def step(table, made, rows):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.embedding_lookup(table, rows) ** 2)
        grad = tape.gradient(loss, table)
        made.apply_gradients([(grad, table)])
        return isinstance(grad, tf.IndexedSlices)

    strategy, coordinator = coordinate(workers=3, backup_workers=0)
    table, made = make(strategy)
    run = tf.function(lambda rows: step(table, made, rows))
    batches = [[0, 3], [3, 3], [5, 0], [1, 1], [0, 4], [4, 1]]
    results = [coordinator.schedule(run, args=(tf.constant(rows),)) for rows in batches]
    coordinator.join()
    assert all(result.fetch() for result in results)
    expected, other = make(tf.distribute.OneDeviceStrategy("/cpu:0"))
    for rows in np.reshape(batches, (2, 6)):
        step(expected, other, tf.constant(rows))
    np.testing.assert_allclose(table.numpy(), expected.numpy(), rtol=1e-6)


def read_after(training, x):
    training.replica(x)
    return training.weights[0] + 0.0


def count_after(training, x):
    training.replica(x)
    return training.optimizer.iterations + 0


def apply_twice(training, x):
    training.replica(x)
    training.optimizer.apply_gradients([(tf.ones(3), training.weights[1])])


def read_in_another_program(training, x):
    if tf.reduce_sum(x) > -1e6:  # It changes variables, and so the function runs as Python.
        training.step(x)
    return training.look()


def read_as_python(training, x):
    if tf.reduce_sum(x) > -1e6:
        training.replica(x)
    return float(tf.reduce_sum(training.weights[0] * 2.0))


def change_by_hand(training, x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(x @ training.weights[0])
    training.weights[0].assign_sub(0.1 * tape.gradient(loss, training.weights[0]) * loss)


def assign_by_hand(training, x):
    training.weights[1].assign(tf.tanh(training.weights[1]) + tf.reduce_sum(x))


def change_as_python(training, x):
    if tf.reduce_sum(x) > -1e6:
        training.weights[1].assign_add(x[0, :3])


AFTER = "uses .* after it has given gradients for it to the round"
REFUSED = {
    read_after: AFTER,
    count_after: AFTER,
    apply_twice: AFTER,
    read_in_another_program: AFTER,
    read_as_python: AFTER,
    change_by_hand: "which is trainable, by what it has computed of trainable variables",
    assign_by_hand: "which is trainable, by what it has computed of trainable variables",
    change_as_python: "runs as Python changes .*, which is trainable",
}


@pytest.mark.parametrize("fn", REFUSED, ids=lambda fn: fn.__name__)
def test_what_rounds_cannot_put_together_is_refused(coordinate, fn):
    strategy, coordinator = coordinate(workers=2, backup_workers=0)
    training = Training(strategy)
    coordinator.schedule(training.look).fetch()  # Its program is there.
    before = training.values
    x = tf.constant(make_batches(1)[0])
    step = tf.function(lambda x: fn(training, x))
    for _ in range(2):
        with pytest.raises(NotImplementedError, match=REFUSED[fn]):
            coordinator.schedule(step, args=(x,))
            coordinator.join()
    assert_same(training.values, before, rtol=0, atol=0)
    # The coordinator may do all of it.
    step(x)


def test_plain_sums_keep_their_meaning_and_learning_rates_may_be_told(coordinate):
    strategy, coordinator = coordinate(workers=2, backup_workers=1)
    training = Training(strategy)
    with strategy.scope():
        total = tf.Variable(0.0)

    @tf.function
    def step(x, y):
        training.replica(x)
        total.assign_add(y)
        return training.optimizer.learning_rate + 0.0

    results = [
        coordinator.schedule(step, args=(tf.constant(x), tf.constant(float(i)))) for i, x in enumerate(make_batches(9))
    ]
    coordinator.join()
    assert float(total) == 36 and {float(result.fetch()) for result in results} == {0.5}


def test_what_a_step_gives_to_its_round_is_told_before_it_runs(coordinate):
    strategy, coordinator = coordinate(workers=3, backup_workers=1)
    training = Training(strategy)
    told = []
    before = BEFORE_RUN.set(lambda step, mesh, args: told.append(step))
    try:
        for x in make_batches(4):
            coordinator.schedule(training.step, args=(tf.constant(x),))
        coordinator.join()
    finally:
        BEFORE_RUN.reset(before)
    (explanation,) = told
    given = sum(weight.numpy().nbytes for weight in training.weights)
    # The step's counter is changed by what it sends itself.
    assert (explanation.workers, explanation.given, sum(explanation.pushed.values())) == (3, given, 4)
    told = coordinator.statistics
    # With the mean of a round a server gets a few numbers that the optimizer knows.
    assert 0 <= told.pushed_bytes - 4 * (given + 4) - told.rounds * given <= told.rounds * 8
    assert "A round waits for all workers but 1 (`backup_workers=1`)" in str(explanation)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"backup_workers": -1}, ValueError, "`backup_workers` must be a whole number, 0 or more, got -1"),
        ({"backup_workers": 1.0}, TypeError, "`backup_workers` must be a whole number"),
        ({"backup_workers": True}, TypeError, "`backup_workers` must be a whole number"),
        ({"backup_workers": 2}, ValueError, r"Of 2 worker\(s\), `backup_workers` may be 1 at most"),
        ({"backup_workers": 0, "max_staleness": 0}, ValueError, "Give one of them"),
    ],
)
def test_options_of_rounds_are_checked_when_the_strategy_is_made(coordinate, options, error, text):
    with pytest.raises(error, match=text):
        coordinate(workers=2, **options)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("backup_workers", [0, 1])
def test_digits_are_learned_in_rounds(coordinate, backup_workers):
    strategy, coordinator = coordinate(workers=4, backup_workers=backup_workers)
    digits = DigitsTraining(strategy, 5e-3)

    @tf.function
    def step(iterator):
        strategy.run(digits.train, args=next(iterator))

    iterator = digits.make_iterators(coordinator, 16)
    for _ in range(800):
        coordinator.schedule(step, args=(iterator,))
    coordinator.join()
    assert digits.evaluate(coordinator) >= 0.95
    told = coordinator.statistics
    assert int(digits.optimizer.iterations) == told.rounds
    assert 0 <= (4 - backup_workers) * told.rounds - (800 - told.dropped) < 4 - backup_workers
