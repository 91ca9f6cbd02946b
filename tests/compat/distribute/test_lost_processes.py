"""Workers and servers that go, freeze and come back while a coordinator trains: each change counts once, and nobody waits for ever."""

import threading

import keras
import numpy as np
import pytest
from sklearn.datasets import load_digits

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax._servers import Server

CLOSURES = 30


@pytest.fixture
def engine():
    return "messages"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setenv("TFDIST_HEARTBEAT_TIMEOUT_S", "0.5")
    monkeypatch.setenv("TFDIST_WARN_TIMEOUT_S", "0.1")


@pytest.fixture
def after_changes(monkeypatch):
    """Lets `happen(number)` be called when a server has made that many changes, before it answers."""
    happens, count, lock = [], [0], threading.Lock()
    handle = Server.handle

    def observed(self, message, sent, sender):
        before = self._changes
        answer = handle(self, message, sent, sender)
        if self._changes > before:
            with lock:
                count[0] += 1
                number = count[0]
            for happen in happens:
                happen(number)
        return answer

    monkeypatch.setattr(Server, "handle", observed)
    return happens.append


@pytest.fixture
def training(coordinate):
    """A function of two changes to two servers, each of which has to happen once, and what the variables are to hold then."""
    strategy, coordinator = coordinate()
    with strategy.scope():
        first, second = tf.Variable(0.0), tf.Variable(0.0)

    @tf.function
    def step(x):
        read = second.assign_add(tf.sin(x) ** 2 + tf.cos(x) ** 2)
        first.assign_add(tf.math.floor(x + 0.0 * read))
        return x

    def run():
        results = [coordinator.schedule(step, args=(tf.constant(float(i)),)) for i in range(CLOSURES)]
        coordinator.join()
        assert [int(result.fetch()) for result in results] == list(range(CLOSURES))
        assert float(first) == sum(range(CLOSURES))
        np.testing.assert_allclose(float(second), CLOSURES, rtol=1e-5)
        return coordinator.statistics

    return run


@pytest.mark.parametrize("moment", [1, 2, 7, 20])
def test_a_worker_that_goes_after_a_change_changes_nothing_twice(training, rays, after_changes, moment, caplog):
    def happen(number):
        if number == moment:
            rays[0].actors["worker", 0].end()
            rays[0].actors["worker", 1].end()
        if number == moment:
            rays[0].start("worker", 0)
            threading.Timer(0.3, rays[0].start, ("worker", 1)).start()

    after_changes(happen)
    told = training()
    assert told.retries >= 1 and told.closures == CLOSURES and told.workers in (1, 2)
    assert "has gone; its closure runs on another one" in caplog.text


def test_a_frozen_worker_counts_as_gone_and_what_it_says_later_is_not_heard(training, rays, after_changes, caplog):
    frozen = []

    def happen(number):
        if number == 5:
            frozen.append(rays[0].actors["worker", 1])
            frozen[0].freeze()
            threading.Timer(1.5, rays[0].start, ("worker", 1)).start()

    after_changes(happen)
    assert training().closures == CLOSURES
    frozen[0].thaw()
    assert "no sign of life" in caplog.text or "has gone" in caplog.text


def test_without_any_worker_the_coordinator_waits_and_says_so(training, rays, after_changes, caplog):
    def happen(number):
        if number == 3:
            for i in range(2):
                rays[0].actors["worker", i].end()
            threading.Timer(1.0, rays[0].start, ("worker", 1)).start()

    after_changes(happen)
    told = training()
    assert told.closures == CLOSURES and told.workers == 1
    assert "Waiting for the task worker" in caplog.text or "has gone" in caplog.text


@pytest.mark.parametrize("how", ["end", "freeze"])
def test_a_server_that_goes_is_an_error(training, rays, after_changes, how):
    after_changes(lambda number: getattr(rays[0].actors["ps", 1], how)() if number == 4 else None)
    with pytest.raises(tf.errors.UnavailableError, match="A server has gone, and the variables that it held"):
        training()


def test_workers_that_cannot_come_back_are_an_error(training, rays, after_changes, monkeypatch):
    def refuse(*args, **kwargs):
        raise ConnectionError("Ray has gone.")

    def happen(number):
        if number == 2:
            monkeypatch.setattr(rays[0], "wait_for_actor", refuse)
            rays[0].actors["worker", 0].end()

    after_changes(happen)
    with pytest.raises(ConnectionError, match="Ray has gone"):
        training()
    with pytest.raises(ConnectionError, match="Ray has gone"):
        training()


def test_iterators_of_a_worker_that_comes_back_begin_anew(coordinate, rays):
    strategy, coordinator = coordinate(workers=1)
    with strategy.scope():
        total = tf.Variable(0.0)

    def add(x):
        total.assign_add(tf.sin(x) * 0 + x)
        return x

    @tf.function
    def step(iterator):
        return strategy.run(add, args=(next(iterator),))

    iterator = iter(
        coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.range(100).map(lambda x: tf.cast(x, tf.float32)))
    )
    first = [coordinator.schedule(step, args=(iterator,)).fetch() for _ in range(3)]
    rays[0].actors["worker", 0].end()
    threading.Timer(0.2, rays[0].start, ("worker", 0)).start()
    second = [coordinator.schedule(step, args=(iterator,)).fetch() for _ in range(3)]
    assert (first, second) == ([0, 1, 2], [0, 1, 2])
    assert float(total) == 6


def test_digits_are_learnt_by_four_workers_of_which_some_go(coordinate, rays, after_changes):
    x, y = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(x))
    x, y = (x[order] / 16).astype("f4"), y[order].astype("i4")
    strategy, coordinator = coordinate(workers=4)
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)])
        optimizer = keras.optimizers.Adam(3e-3)
        optimizer.build(model.trainable_variables)

    @tf.function
    def step(rows, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(rows, training=True))
            loss = tf.reduce_mean(losses)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return loss

    def happen(number):
        if number in (20, 90, 200):
            index = number % 4
            rays[0].actors["worker", index].end()
            rays[0].start("worker", index)

    after_changes(happen)
    for epoch in range(10):
        order = np.random.RandomState(epoch).permutation(1500)
        for i in range(0, 1500, 50):
            coordinator.schedule(step, args=(tf.constant(x[order[i : i + 50]]), tf.constant(y[order[i : i + 50]])))
    coordinator.join()
    accuracy = np.mean(np.argmax(model(x[1500:]), -1) == y[1500:])
    assert int(optimizer.iterations) == 300 and coordinator.statistics.closures == 300
    assert accuracy > 0.9, accuracy
