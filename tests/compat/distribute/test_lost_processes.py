"""Workers and servers that go, freeze and come back while a coordinator trains: each change counts once, and nobody waits for ever."""

import gc
import itertools
import threading
import time

import keras
import numpy as np
import pytest
from environment import LIMIT_S
from sklearn.datasets import load_digits
from waiting import wait_until

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax._coordinator import LocalRounds
from tfdist_jax._servers import Runner, Server, StaleSenderError
from tfdist_jax._servers._ray_actors import WorkerActor
from tfdist_jax._servers._ray_engine import RayServers, RayWorker

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
        check()
        return coordinator.statistics

    def check():
        assert float(first) == sum(range(CLOSURES))
        np.testing.assert_allclose(float(second), CLOSURES, rtol=1e-5)

    run.check = check
    return run


@pytest.mark.parametrize("moment", [1, 2, 7, 20])
def test_a_worker_that_goes_after_a_change_changes_nothing_twice(training, rays, after_changes, moment, caplog):
    def happen(number):
        if number == moment:
            rays[0].actors["worker", 0].end()
            rays[0].actors["worker", 1].end()
            rays[0].start("worker", 0)
            threading.Timer(0.3, rays[0].start, ("worker", 1)).start()

    after_changes(happen)
    told = training()
    assert told.retries >= 1 and told.closures == CLOSURES
    assert "has gone; its closure runs on another one" in caplog.text


def test_a_frozen_worker_counts_as_gone_and_what_it_does_later_counts_for_nothing(training, rays, monkeypatch, caplog):
    frozen, goes_on, has_gone_on = threading.Event(), threading.Event(), threading.Event()
    run = Runner.run

    def freeze(self, plan, arguments, ask, *others):
        def ask_later(messages, sent, number):
            if any(message.is_change for message in messages) and not frozen.is_set():
                frozen.set()
                rays[0].actors["worker", 0].freeze()
                goes_on.wait(LIMIT_S)
                try:
                    return ask(messages, sent, number)
                finally:
                    has_gone_on.set()
            return ask(messages, sent, number)

        is_frozen_one = not frozen.is_set() and threading.current_thread() in rays[0].threads_of("worker", 0)
        return run(self, plan, arguments, ask_later if is_frozen_one else ask, *others)

    monkeypatch.setattr(Runner, "run", freeze)
    threading.Timer(3, rays[0].start, ("worker", 0)).start()
    told = training()
    assert frozen.is_set() and told.retries == 1 and "no sign of life" in caplog.text
    goes_on.set()
    assert has_gone_on.wait(LIMIT_S)
    training.check()


def test_without_any_worker_the_coordinator_waits(training, rays, after_changes, caplog):
    def happen(number):
        if number == 3:
            for i in range(2):
                rays[0].actors["worker", i].end()
            threading.Timer(1.0, rays[0].start, ("worker", 1)).start()

    after_changes(happen)
    told = training()
    assert told.closures == CLOSURES and told.workers == 1
    assert [f"The worker {i} has gone" in caplog.text for i in range(2)] == [True, True]


@pytest.mark.parametrize("how", ["end", "freeze"])
def test_a_server_that_goes_is_an_error(training, rays, after_changes, how):
    after_changes(lambda number: getattr(rays[0].actors["ps", 1], how)() if number == 4 else None)
    with pytest.raises(tf.errors.UnavailableError, match="A server has gone, and the variables that it held"):
        training()


def test_a_fit_whose_server_goes_is_an_error(coordinate, rays, after_changes):
    strategy, _ = coordinate()
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x = np.ones((64, 4), "f4")
    after_changes(lambda number: rays[0].actors["ps", 1].end() if number == 9 else None)
    with pytest.raises(tf.errors.UnavailableError, match="A server has gone, and the variables that it held"):
        model.fit(x, x[:, :1], batch_size=4, verbose=0)


def test_workers_that_cannot_come_back_are_an_error(training, rays, after_changes, monkeypatch):
    def refuse(*args, **kwargs):
        raise ConnectionError("Ray has gone.")

    def happen(number):
        if number == 2:
            monkeypatch.setattr(rays[0], "wait_for_peer", refuse)
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


def test_eager_changes_beside_workers_lose_nothing(coordinate):
    strategy, coordinator = coordinate()
    with strategy.scope():
        v, w = tf.Variable(0.0), tf.Variable(0.0)
        optimizer = keras.optimizers.SGD(1.0)
        optimizer.build([v, w])

    @tf.function
    def add(x):
        v.assign_add(tf.sin(x) ** 2 + tf.cos(x) ** 2)
        w.assign_add(1.0)

    @tf.function
    def branch(x):
        if float(x) >= 0:  # It runs uncompiled.
            w.assign_add(1.0)

    for i in range(60):
        coordinator.schedule(add, args=(tf.constant(float(i)),))
        coordinator.schedule(branch, args=(tf.constant(float(i)),))
        v.assign_add(1.0)
        optimizer.apply_gradients([(tf.constant(-1.0), v), (tf.constant(-1.0), w)])
    coordinator.join()
    np.testing.assert_allclose([float(v), float(w)], [180, 180], rtol=1e-5)


def test_variables_of_the_coordinator_change_once_whoever_goes(coordinate, rays, after_changes):
    strategy, coordinator = coordinate()
    local = tf.Variable(0.0)
    with strategy.scope():
        v = tf.Variable(0.0)

    @tf.function
    def step(x):
        local.assign_add(1.0)
        v.assign_add(tf.sin(x) * 0 + 1)

    def happen(number):
        if number in (3, 9):
            for i in range(2):
                rays[0].actors["worker", i].end()
                rays[0].start("worker", i)

    after_changes(happen)
    for i in range(20):
        coordinator.schedule(step, args=(tf.constant(float(i)),))
    coordinator.join()
    assert (float(local), float(v)) == (20, 20) and coordinator.statistics.retries >= 1


def test_a_step_that_outlives_its_coordinator_changes_nothing_of_the_next_ones(coordinate, rays, monkeypatch):
    strategy, coordinator = coordinate(workers=1, servers=1)
    with strategy.scope():
        v = tf.Variable(0.0)
    has_begun, goes_on, ended = threading.Event(), threading.Event(), []
    run = Runner.run

    def run_late(self, *arguments):
        has_begun.set()
        goes_on.wait(LIMIT_S)
        try:
            return run(self, *arguments)
        except BaseException as error:
            ended.append(type(error))
            raise

    monkeypatch.setattr(Runner, "run", run_late)
    coordinator.schedule(tf.function(lambda x: v.assign_add(tf.sin(x) + 7.0)), args=(tf.constant(0.0),))
    assert has_begun.wait(LIMIT_S)
    servers = RayServers(rays[0], 1)  # As another coordinator would begin.
    RayWorker(rays[0], 0, servers)
    servers.set(0, {v.stored.number: np.float32(100)})
    goes_on.set()
    with pytest.raises(StaleSenderError, match="Another coordinator"):
        coordinator.join()
    assert ended == [StaleSenderError] and float(servers.get(0, [v.stored.number])[0]) == 100


@pytest.mark.parametrize("comes_back", [False, True])
def test_no_round_waits_for_a_worker_that_has_gone(coordinate, rays, comes_back):
    strategy, coordinator = coordinate(workers=3, backup_workers=0)
    with strategy.scope():
        weight, seen = keras.Variable(np.ones(2, "f4")), tf.Variable(0.0, trainable=False)
        optimizer = keras.optimizers.SGD(0.25, momentum=0.5)

    @tf.function
    def step(x):
        seen.assign_add(1.0)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x * weight - 1.0) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, [weight]), [weight], strict=True))

    batches = np.random.RandomState(0).rand(24, 2).astype("f4")
    expected, speed = np.ones(2), 0.0
    for i in range(0, 24, 3):
        gradient = np.mean((batches[i : i + 3] * expected - 1) * batches[i : i + 3], axis=0)
        speed = 0.5 * speed - 0.25 * gradient
        expected = expected + speed
    for i, x in enumerate(batches):
        if i == 12:
            coordinator.join()
            rays[0].actors["worker", 1].end()
            if comes_back:
                rays[0].start("worker", 1)
        coordinator.schedule(step, args=(tf.constant(x),))
    coordinator.join()
    np.testing.assert_allclose(weight.numpy(), expected, rtol=1e-5)
    told = coordinator.statistics
    assert (told.closures, told.rounds, told.dropped, told.retries, float(seen)) == (24, 8, 0, 1, 24)


@pytest.mark.parametrize("moment", [2, 9, 25])
@pytest.mark.parametrize("kind", ["killed", "frozen"])
def test_workers_that_go_lose_their_copies_and_training_goes_on(coordinate, rays, monkeypatch, moment, kind):
    count, lock, run = itertools.count(1), threading.Lock(), WorkerActor.run
    struck, rounds = [], []

    def observed(self, *arguments):
        outcome = run(self, *arguments)
        with lock:
            is_now = next(count) == moment
        if is_now:
            thread, ray = threading.current_thread(), rays[-1]
            index = next(i for i in range(3) if thread in ray.threads_of("worker", i))
            struck.append(index)
            actor = ray.actors["worker", index]
            if kind == "killed":
                actor.end()
            else:
                actor.freeze()
            threading.Thread(target=start_again, args=(ray, index), daemon=True).start()
        return outcome

    def start_again(ray, index):
        while len(rounds) < 1 and coordinator.statistics.closures < 60:  # The others go on without it.
            time.sleep(0.01)
        rounds.append(coordinator.statistics.rounds)
        ray.start("worker", index)

    monkeypatch.setattr(WorkerActor, "run", observed)
    strategy, coordinator = coordinate(3, 2, sync_every=4, outer_optimizer=keras.optimizers.SGD(1.0))
    with strategy.scope():
        weight, steps = tf.Variable(0.0), tf.Variable(0, trainable=False)
        optimizer = keras.optimizers.Adam(0.1)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = (weight - x) ** 2
        optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])
        steps.assign_add(1)
        return loss

    results = [coordinator.schedule(step, args=(tf.constant(1.0),)) for _ in range(80)]
    coordinator.join()
    assert len(struck) == 1 and int(steps) == 80 and coordinator.statistics.closures == 80
    losses = [float(result.fetch()) for result in results]
    assert max(losses) == 1 and 0 <= min(losses[60:]) < 0.05 and np.isfinite(float(weight))
    assert len(rounds) == 1 and rounds[0] >= 4
    # A checkpoint has what the others' optimizers keep.
    assert int(optimizer.iterations) > 10


def test_a_worker_that_comes_back_goes_on_from_what_the_others_have_made_by_then(coordinate, rays, monkeypatch):
    come_back, is_back = LocalRounds.come_back, threading.Event()

    def observed(self, worker):
        come_back(self, worker)
        is_back.set()

    monkeypatch.setattr(LocalRounds, "come_back", observed)
    strategy, coordinator = coordinate(3, 1, sync_every=4)
    with strategy.scope():
        weight, optimizer = tf.Variable(0.0), keras.optimizers.Adam(0.1)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = (weight - x) ** 2
        optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])
        return optimizer.iterations

    def train(closures):
        results = [coordinator.schedule(step, args=(tf.constant(1.0),)) for _ in range(closures)]
        return sorted(int(result.fetch()) for result in results)  # No `join`, with which the last round ends.

    rays[0].actors["worker", 1].end()  # Before it has made any step, and there has been any round.
    assert train(40) == sorted([*range(1, 21)] * 2)
    rays[0].start("worker", 1)
    assert is_back.wait(LIMIT_S)
    assert train(12) == sorted([*range(21, 25)] * 3)


def test_arrays_are_dropped_soon_and_not_in_a_garbage_collection(coordinate, rays):
    strategy, _ = coordinate(1, 1)
    with strategy.scope():
        first, second = tf.Variable(1.0), tf.Variable(2.0)
    number = first.stored.number
    (server,) = (actor for (job, _), actor in rays[0].actors.items() if job == "ps")
    held = lambda: server._object._server._arrays.keys()
    assert number in held()
    with rays[0]._threads._shutdown_lock:  # As if the variable were freed while a call is sent.
        del first
        gc.collect()
        assert number in held()
    wait_until(lambda: number not in held())
    assert second.stored.number in held()
