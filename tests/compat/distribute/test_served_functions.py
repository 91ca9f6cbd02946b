"""What functions of workers do to variables at once: nothing that one of them does is lost, or done to values that are not its own."""

import collections
import threading
import time

import jax
import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax._servers import Server
from tfdist_jax._stateful._served_program import make_program

LIMIT_S = 60
# The functions that let workers meet call Python.
pytestmark = pytest.mark.filterwarnings("ignore:A function on servers calls Python")


@pytest.fixture(params=["threads", "messages"])
def engine(request):
    return request.param


class Pause:
    """A place in a program, where it waits while the test is in the block."""

    def __init__(self):
        self.is_reached, self.is_over = threading.Event(), threading.Event()

    def __call__(self, x):
        return jax.pure_callback(self.wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    def wait(self, x):
        self.is_reached.set()
        assert self.is_over.wait(LIMIT_S)
        return x

    def __enter__(self):
        assert self.is_reached.wait(LIMIT_S)

    def __exit__(self, *error):
        self.is_over.set()


def test_no_change_is_lost_whatever_changes_a_variable(coordinate, meeting):
    strategy, coordinator = coordinate(workers=4)
    meet = meeting(4)
    with strategy.scope():
        added, subtracted, table = tf.Variable(0.0), tf.Variable([0.0, 0.0]), tf.Variable(tf.zeros([5, 2]))
        read = tf.Variable(
            0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM
        )

    @tf.function
    def compiled(row):
        one = meet(added * 0 + 1.0)
        added.assign_add(one)
        subtracted.assign_sub([one, one * 2])
        table.scatter_add(tf.IndexedSlices(tf.fill([1, 2], one), row[None]))
        read.assign_add(tf.cast(one, tf.int32))

    @tf.function
    def in_replica(row):
        strategy.run(compiled, args=(row,))

    for i in range(200):
        coordinator.schedule(in_replica if i % 2 else compiled, args=(tf.constant(i % 5),))
    coordinator.join()
    assert (float(added), int(read)) == (200, 200) and subtracted.numpy().tolist() == [-200, -400]
    assert table.numpy().tolist() == [[40, 40]] * 5


def test_no_change_of_variables_of_no_strategy_is_lost(coordinate, meeting):
    strategy, coordinator = coordinate(workers=4)
    meet = meeting(4)
    plain, scaled, slow = tf.Variable(0.0), tf.Variable(0.0), tf.Variable(0.0)
    with strategy.scope():
        served = tf.Variable(0.0)

    @tf.function
    def by_constants():
        served.assign_add(meet(served * 0 + 1.0))
        plain.assign_add(1.0)

    @tf.function
    def by_values_of_servers():
        scaled.assign_add(served * 0 + 1.0)

    def wait(x):
        time.sleep(0.005)
        return x

    @tf.function
    def by_what_python_gives():
        served.assign_add(1.0)
        slow.assign_add(jax.pure_callback(wait, jax.ShapeDtypeStruct((), "float32"), tf.constant(1.0)))

    for fn in (by_constants, by_values_of_servers, by_what_python_gives):
        for _ in range(40):
            coordinator.schedule(fn)
        coordinator.join()
    assert (float(served), float(plain), float(scaled), float(slow)) == (80, 40, 40, 40)


def test_a_change_of_a_variable_of_no_strategy_that_would_be_lost_is_an_error(coordinate):
    strategy, coordinator = coordinate()
    plain, pause = tf.Variable(1.0), Pause()
    with strategy.scope():
        served = tf.Variable(0.0)

    @tf.function
    def slow():
        plain.assign_add(pause(served.read_value()))

    coordinator.schedule(slow)
    with pause:
        plain.assign_add(1.0)
    with pytest.raises(RuntimeError, match=r"one of the changes would be lost\. Make it in the strategy's scope"):
        coordinator.join()
    assert float(plain) == 2


def test_workers_draw_numbers_of_their_own(coordinate, meeting):
    strategy, coordinator = coordinate(workers=4)
    meet = meeting(4)
    plain = tf.random.Generator.from_seed(1)
    with strategy.scope():
        served, generator = tf.Variable(0.0), tf.random.Generator.from_seed(2)

    @tf.function
    def draw():
        one = meet(served * 0 + 1)
        served.assign_add(one)
        drawn = tf.random.normal([]), tf.nn.dropout(tf.ones([64]), 0.5), plain.normal([]), generator.normal([])
        return [tf.reshape(tensor * one, [-1]) for tensor in drawn]

    results = [coordinator.schedule(draw) for _ in range(60)]
    for same in zip(*(result.fetch() for result in results), strict=True):
        assert len({tensor.tobytes() for tensor in same}) == 60


def test_counting_gives_each_number_once(coordinate, meeting):
    strategy, coordinator = coordinate(workers=4)
    meet = meeting(4)
    with strategy.scope():
        counter = tf.Variable(0)

    @tf.function
    def count():
        meet(counter.read_value())
        return counter.count_up_to(1000)

    results = [coordinator.schedule(count) for _ in range(60)]
    assert sorted(int(result.fetch()) for result in results) == list(range(60))


def test_what_is_assigned_may_be_a_constant(coordinate):
    strategy, coordinator = coordinate()
    numbers = np.arange(3.0, dtype="f4")
    with strategy.scope():
        v, other, table = tf.Variable(1.0), tf.Variable(1.0), tf.Variable(tf.zeros([3]))

    @tf.function
    def reset():
        v.assign(5.0)
        v.assign_add(1.0)
        other.assign(2.0)
        table.assign(numbers)
        return tf.constant(3.0), numbers

    constant, same = coordinator.schedule(reset).get()
    assert (float(v), float(other), float(constant)) == (6, 2, 3) and same.tolist() == [0, 1, 2]
    assert isinstance(constant, jax.Array) and tf.is_tensor(same) and tf.is_tensor(table.value())
    table[0].assign(7.0)
    assert table.value().numpy().tolist() == [7, 1, 2]


def test_changes_of_one_variable_come_in_their_order(coordinate):
    strategy, coordinator = coordinate()
    with strategy.scope():
        first, second = tf.Variable(0.0), tf.Variable(0.0)

    @tf.function
    def change(x):
        second.assign_add(first.assign_add(x) * 10)  # Waits for the other variable.
        before = second.value()
        second.assign(x * 5)
        second.assign_add(x)
        return before, second.value()

    assert [float(x) for x in coordinator.schedule(change, args=(tf.constant(1.0),)).fetch()] == [10, 6]
    assert (float(first), float(second)) == (1, 6)


def test_what_a_function_tells_and_asserts_before_a_change_happens(coordinate, engine, capfd):
    strategy, coordinator = coordinate()
    with strategy.scope():
        v, halved = tf.Variable(0.0), tf.Variable(1.0)

    @tf.function
    def add(x):
        tf.print("adding", x)
        tf.debugging.assert_positive(x)
        v.assign_add(x)
        halved.assign(halved * 0.5)

    coordinator.schedule(add, args=(tf.constant(2.0),)).fetch()
    assert "adding 2" in capfd.readouterr().err
    for run in (lambda: add(tf.constant(-1.0)), coordinator.join):
        if run == coordinator.join:
            coordinator.schedule(add, args=(tf.constant(-1.0),))
        with pytest.raises(tf.errors.InvalidArgumentError):
            run()
    # A server in another process has done at once what needs nothing else; nobody takes it back, as in TensorFlow.
    assert (float(v), float(halved)) == (2, 0.5 if engine == "threads" else 0.125)


def test_looking_at_a_program_changes_nothing(coordinate):
    strategy, _ = coordinate()
    with strategy.scope():
        v, halved = tf.Variable(0.0), tf.Variable(1.0)

    def change(x):
        v.assign_add(x * v)
        halved.assign(halved * 0.5)

    program = make_program(change, [tf.constant(1.0)])
    assert "multiply" in program.lower([tf.constant(1.0)]).as_text()
    assert float(halved) == 1
    program([tf.constant(1.0)])
    assert float(halved) == 0.5


def test_each_worker_fails_by_its_own_assertions(coordinate):
    strategy, coordinator = coordinate()
    with strategy.scope():
        v = tf.Variable(0.0)

    def wait(x):
        time.sleep(0.005)
        return x

    @tf.function
    def add(x):
        tf.debugging.assert_positive(jax.pure_callback(wait, jax.ShapeDtypeStruct((), "float32"), x))
        v.assign_add(x)

    barrier = threading.Barrier(2, timeout=LIMIT_S)

    def meet_and_add(x):
        barrier.wait()
        add(tf.constant(x))

    for _ in range(30):
        passed, failed = (coordinator.schedule_plainly(lambda x=x: meet_and_add(x)) for x in (1.0, -1.0))
        with pytest.raises(tf.errors.InvalidArgumentError):
            coordinator.join()
        assert isinstance(failed.error(), tf.errors.InvalidArgumentError)
        assert passed.error() is None
    assert float(v) == 30


def test_devices_have_no_effect_beside_servers_which_is_told(coordinate):
    strategy, _ = coordinate()
    with strategy.scope():
        v = tf.Variable(1.0)

    @tf.function
    def add():
        with tf.device("/cpu:1"):
            v.assign_add(1.0)

    with pytest.warns(UserWarning, match="`tf.device` has no effect"):
        add()
    assert float(v) == 2


def test_several_changes_of_one_variable_in_a_function_are_none_of_its_value(coordinate):
    strategy, coordinator = coordinate(workers=2)
    with strategy.scope():
        v = tf.Variable(0.0)
    pause = Pause()

    @tf.function
    def slow():
        v.assign_add(1.0)
        v.assign_add(pause(v.read_value()))

    result = coordinator.schedule(slow)
    with pause:
        coordinator.schedule(tf.function(lambda: v.assign_add(100.0))).fetch()
    result.fetch()
    assert float(v) == 102


def test_a_function_sees_what_it_read_at_first_while_others_change_it(coordinate):
    strategy, coordinator = coordinate()
    with strategy.scope():
        v = tf.Variable(1.0)
    pause = Pause()

    @tf.function
    def slow():
        x = pause(v.read_value())
        v.assign_add(x)
        return x

    result = coordinator.schedule(slow)
    with pause:
        coordinator.schedule(tf.function(lambda: v.assign_add(100.0))).fetch()
    assert result.fetch() == 1 and float(v) == 102
    assert coordinator.statistics.staleness == {0: 1, 1: 1}


def test_fits_give_wide_numbers_as_programs_take_them(coordinate):
    strategy, coordinator = coordinate()
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    rows, labels = np.ones((8, 2)), np.arange(8) % 3
    assert (rows.dtype, labels.dtype) == (np.float64, np.int64)
    model.fit(tf.data.Dataset.from_tensor_slices((rows, labels)).batch(4), epochs=2, verbose=0)
    assert int(model.optimizer.iterations) == 4 and coordinator.statistics.closures == 4


@pytest.mark.parametrize("engine", ["messages"])
def test_a_step_sends_each_server_its_gradients_in_one_message(coordinate, monkeypatch):
    handled, handle = [], Server.handle

    def observed(self, message, sent, sender):
        handled.append((id(self), bool(message.is_change)))
        return handle(self, message, sent, sender)

    strategy, coordinator = coordinate()
    with strategy.scope():
        weights = [tf.Variable(tf.ones([4, 4])) for _ in range(6)]
        optimizer = keras.optimizers.Adam(0.1)
        optimizer.build(weights)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = x
            for weight in weights:
                y = tf.tanh(y @ weight)
            loss = tf.reduce_sum(y)
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))

    coordinator.schedule(step, args=(tf.ones([2, 4]),))
    coordinator.join()
    monkeypatch.setattr(Server, "handle", observed)
    for _ in range(5):
        coordinator.schedule(step, args=(tf.ones([2, 4]),))
    coordinator.join()
    told = collections.Counter(handled)
    # It reads before it computes, and each server's update what the other one holds, such as the number of the step.
    assert sorted(told.values()) == [5, 5, 10, 10]
    assert [count for (_, is_change), count in told.items() if is_change] == [5, 5]
