"""Closures for workers: each runs, also where workers go, and what fails is told."""

import gc
import random
import threading
import time

import pytest
from waiting import wait_until

from tfdist_jax._coordinator import (
    ClosureCancelledError,
    ClosureQueue,
    Coordinator,
    Rounds,
    Statistics,
    WorkerLostError,
    _coordinator,
    current_worker,
)
from tfdist_jax._coordinator._closure_queue import Closure
from tfdist_jax._coordinator._worker import being_worker

LIMIT_S = 60


class Unreliable:
    """A worker that goes before or after it has run a closure, as `loses` says; back after a moment."""

    def __init__(self, index, loses=lambda: False):
        self.index, self.loses, self.recovered = index, loses, 0

    def run(self, closure, oldest):
        if self.loses():
            raise WorkerLostError
        assert closure.number is None or oldest() <= closure.number
        with being_worker(self):
            result = closure.fn()
        if self.loses():
            raise WorkerLostError
        return result

    def recover(self, is_over):
        time.sleep(0.001)
        self.recovered += 1


@pytest.fixture
def make():
    made = []

    def make(count=2, loses=lambda: False, **options):
        workers = [Unreliable(i, loses) for i in range(count)]
        made.append(Coordinator(workers, **options))
        return made[-1], workers

    yield make
    for coordinator in made:
        coordinator.stop()


def test_closures_run_once_each_on_any_worker(make):
    coordinator, _ = make(3)
    results = [coordinator.schedule(lambda i=i: (i, current_worker().index)) for i in range(200)]
    coordinator.join()
    assert coordinator.done() and all(result.is_ready for result in results)
    numbers, workers = zip(*(result.result() for result in results), strict=True)
    assert numbers == tuple(range(200)) and set(workers) <= {0, 1, 2}
    assert coordinator.statistics.snapshot().closures == 200


def test_workers_run_closures_side_by_side(make):
    coordinator, _ = make(3)
    meeting = threading.Barrier(3, timeout=LIMIT_S)
    for _ in range(3):
        coordinator.schedule(meeting.wait)
    coordinator.join()


@pytest.mark.parametrize("seed", range(5))
def test_no_closure_is_lost_with_its_worker(make, seed):
    chance = random.Random(seed)
    coordinator, workers = make(4, lambda: chance.random() < 0.1)
    ran = [0] * 300
    lock = threading.Lock()

    def closure(i):
        with lock:
            ran[i] += 1
        return i

    results = [coordinator.schedule(lambda i=i: closure(i)) for i in range(300)]
    coordinator.join()
    assert [result.result() for result in results] == list(range(300))
    wait_until(lambda: coordinator.statistics.snapshot().workers == 4)
    told = coordinator.statistics.snapshot()
    assert min(ran) >= 1 and told.closures == 300 and told.retries == sum(w.recovered for w in workers) > 0


def test_the_first_error_is_raised_once_and_cancels_what_waits(make):
    coordinator, _ = make(1)
    go = threading.Event()

    def fail(text):
        go.wait(LIMIT_S)
        raise ValueError(text)

    failed = coordinator.schedule(lambda: fail("first"))
    waiting = [coordinator.schedule(lambda: fail("second")) for _ in range(3)]
    go.set()
    with pytest.raises(ValueError, match="first"):
        coordinator.join()
    with pytest.raises(ValueError, match="first"):
        failed.result()
    for closure in waiting:
        with pytest.raises((ValueError, ClosureCancelledError)):
            closure.result()
    coordinator.join()
    assert coordinator.done() and coordinator.schedule(lambda: 5).result() == 5


def test_schedule_and_done_raise_errors_too(make):
    coordinator, _ = make(1)
    for ask in (coordinator.done, lambda: coordinator.schedule(lambda: None)):
        with pytest.raises(ZeroDivisionError):
            coordinator.schedule(lambda: 1 / 0).result()
        wait_until(lambda: coordinator._queue._error is not None)
        with pytest.raises(ZeroDivisionError):
            ask()


def test_an_error_is_raised_once_whoever_asks_at_the_same_time(make):
    for _ in range(20):
        coordinator, _ = make(2)
        go, raised, asked = threading.Event(), [], threading.Barrier(3, timeout=LIMIT_S)
        coordinator.schedule(lambda go=go: go.wait(LIMIT_S))
        with pytest.raises(ZeroDivisionError):
            coordinator.schedule(lambda: 1 / 0).result()

        def ask(what, raised=raised, asked=asked):
            asked.wait()
            try:
                what()
            except Exception as error:
                raised.append(type(error))

        threads = [threading.Thread(target=ask, args=[what]) for what in (coordinator.join, coordinator.done)]
        for thread in threads:
            thread.start()
        asked.wait()
        time.sleep(0.005)  # Both wait for the closure that runs.
        go.set()
        for thread in threads:
            thread.join(LIMIT_S)
        assert raised == [ZeroDivisionError]
        assert coordinator.schedule(lambda: 5).result() == 5


def test_an_exit_in_a_closure_is_an_error_and_the_worker_goes_on(make):
    coordinator, _ = make(1)
    coordinator.schedule(lambda: exit(3))
    with pytest.raises(SystemExit):
        coordinator.join()
    assert coordinator.schedule(lambda: 1).result() == 1


def test_what_a_worker_has_made_is_made_again_when_it_is_back(make):
    losing = threading.Event()
    coordinator, (worker,) = make(1, losing.is_set)
    made = []
    (value,) = coordinator.make_on_each(lambda: made.append(None) or len(made))
    assert value.result() == 1
    losing.set()
    closure = coordinator.schedule(lambda: value.result())
    wait_until(lambda: worker.recovered)
    losing.clear()
    assert closure.result() >= 2 and value.result() >= 2


def test_what_could_not_be_made_is_told_where_it_is_used(make):
    coordinator, _ = make(1)
    (value,) = coordinator.make_on_each(lambda: 1 / 0)
    assert isinstance(value.error(), ZeroDivisionError)
    coordinator.join()  # It is no closure's error.


@pytest.mark.parametrize("what", ["join", "schedule", "make_on_each"])
def test_a_closure_that_would_wait_for_its_own_worker_is_refused(make, what):
    coordinator, _ = make(1)
    arguments = () if what == "join" else (lambda: None,)
    coordinator.schedule(lambda: getattr(coordinator, what)(*arguments))
    with pytest.raises(RuntimeError, match="would wait for the worker"):
        coordinator.join()


@pytest.mark.parametrize("most", [0, 1, 3])
def test_staleness_is_bounded(make, most):
    coordinator, _ = make(4, max_staleness=most)
    chance, lock, ended, seen = random.Random(0), threading.Lock(), [], []

    def closure(i):
        with lock:
            before = len(ended)
        time.sleep(chance.choice([0, 0, 0.01]))
        with lock:
            seen.append(len(ended) - before)
            ended.append(i)

    for i in range(100):
        coordinator.schedule(lambda i=i: closure(i))
    coordinator.join()
    assert max(seen) <= most and (most == 0 or max(seen) > 0)
    assert most or ended == list(range(100))


def test_without_staleness_workers_take_turns(make):
    coordinator, _ = make(3, max_staleness=0)
    turns = [coordinator.schedule(lambda: current_worker().index) for _ in range(7)]
    assert [turn.result() for turn in turns] == [0, 1, 2, 0, 1, 2, 0]


def test_the_turn_of_a_worker_that_has_gone_is_the_next_ones(make):
    is_lost, is_back = threading.Event(), threading.Event()
    coordinator, workers = make(3, max_staleness=0)
    workers[1].loses = is_lost.is_set
    workers[1].recover = lambda is_over: is_back.wait(LIMIT_S)
    is_lost.set()
    turns = [coordinator.schedule(lambda: current_worker().index) for _ in range(5)]
    assert [turn.result() for turn in turns] == [0, 2, 0, 2, 0]
    is_lost.clear()
    is_back.set()
    wait_until(lambda: coordinator.statistics.snapshot().workers == 3)
    turns = [coordinator.schedule(lambda: current_worker().index) for _ in range(3)]
    assert sorted(turn.result() for turn in turns) == [0, 1, 2]


@pytest.mark.parametrize("wrong", [-1, 1.5, "2", True])
def test_staleness_is_a_number_of_closures(wrong):
    with pytest.raises(ValueError, match="number of closures"):
        Coordinator([], max_staleness=wrong)


def test_what_happens_is_logged_now_and_then(make, caplog):
    caplog.set_level("INFO", "tfdist_jax")
    coordinator, _ = make(2, report_every_s=0.01)
    coordinator.schedule(lambda: None)
    wait_until(lambda: "1 closures in" in caplog.text)
    lines = len(caplog.records)
    time.sleep(0.05)
    assert len(caplog.records) == lines  # Nothing has happened since.
    for wrong in (0, -1, "1"):
        with pytest.raises(ValueError, match="number of seconds"):
            Coordinator([], report_every_s=wrong)


def test_threads_end_with_the_coordinator(make):
    before = threading.active_count()
    coordinator = Coordinator([Unreliable(0), Unreliable(1)])
    waiting = coordinator.schedule(lambda: 1)
    assert waiting.result() == 1 and threading.active_count() == before + 2
    del coordinator
    gc.collect()
    wait_until(lambda: threading.active_count() == before)


def test_a_stopped_coordinator_says_so(make):
    coordinator, _ = make()
    coordinator.stop()
    for ask in (coordinator.schedule, coordinator.make_on_each):
        with pytest.raises(RuntimeError, match="has been stopped"):
            ask(lambda: 1)


def test_who_waits_for_room_in_a_queue_that_is_closed_is_told():
    queue, errors = ClosureQueue(1, ClosureCancelledError, limit=1), []
    queue.put(Closure(lambda: 1))

    def put():
        try:
            queue.put(Closure(lambda: 2))
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=put)
    thread.start()
    time.sleep(0.02)
    queue.close()
    thread.join(LIMIT_S)
    assert len(errors) == 1 and "has been stopped" in errors[0]


def test_who_waits_for_closures_that_are_cancelled_by_stopping_is_told(make):
    entered, go, errors = threading.Event(), threading.Event(), []
    coordinator, _ = make(1)

    def run():
        entered.set()
        assert go.wait(LIMIT_S)

    def join():
        try:
            coordinator.join()
        except RuntimeError as error:
            errors.append(str(error))

    coordinator.schedule(run)
    cancelled = coordinator.schedule(run)
    assert entered.wait(LIMIT_S)
    threads = [threading.Thread(target=join)]
    threads[0].start()
    while not coordinator._queue._scheduling.locked():
        time.sleep(0.001)
    threads.append(threading.Thread(target=coordinator.stop))
    threads[1].start()
    threads[0].join(LIMIT_S)
    go.set()
    threads[1].join(LIMIT_S)
    assert len(errors) == 1 and "has been stopped" in errors[0]
    assert isinstance(cancelled.error(), ClosureCancelledError)
    coordinator.join()  # All is over.


def test_stopping_waits_for_all_threads_together(make, monkeypatch):
    monkeypatch.setattr(_coordinator, "_LAST_S", 0.2)
    coordinator, _ = make(4)
    go, begun = threading.Event(), threading.Barrier(5, timeout=LIMIT_S)

    def closure():
        begun.wait()
        go.wait(LIMIT_S)

    for _ in range(4):
        coordinator.schedule(closure)
    begun.wait()
    waited = []
    monkeypatch.setattr(
        threading.Thread, "join", lambda self, timeout=None: (waited.append(timeout), time.sleep(timeout))
    )
    coordinator.stop()
    monkeypatch.undo()
    go.set()
    assert len(waited) == 4 and sum(waited) <= 0.2


def test_no_closure_begins_while_an_error_waits_for_those_that_run(make):
    coordinator, _ = make(2)
    begun, goes_on, fails = [], threading.Event(), threading.Event()

    def wait():
        fails.set()
        goes_on.wait(LIMIT_S)

    def fail():
        fails.wait(LIMIT_S)
        are_scheduled.wait(LIMIT_S)
        raise ValueError("It fails.")

    are_scheduled = threading.Event()
    coordinator.schedule(wait)
    coordinator.schedule(fail)
    rest = [coordinator.schedule(lambda: time.sleep(0.01) or begun.append(1)) for _ in range(1000)]
    are_scheduled.set()
    threading.Timer(0.5, goes_on.set).start()
    with pytest.raises(ValueError, match="It fails"):
        coordinator.join()
    assert len(begun) < 200 and all(isinstance(each.error(), ClosureCancelledError | None) for each in rest)


def test_workers_that_cannot_recover_end_all(make):
    coordinator, workers = make(1, loses=lambda: True)

    def refuse(is_over):
        raise ConnectionError("Nobody is there.")

    workers[0].recover = refuse
    result = coordinator.schedule(lambda: 1)
    for call in (coordinator.join, coordinator.done, lambda: coordinator.schedule(lambda: 2)):
        with pytest.raises(ConnectionError, match="Nobody is there"):
            call()
    assert isinstance(result.error(), ClosureCancelledError)


def test_a_closure_runs_on_the_worker_that_it_is_for(make):
    coordinator, _ = make(3)
    results = [coordinator.schedule(lambda: current_worker().index, worker=i % 3) for i in range(30)]
    coordinator.join()
    assert [result.result() for result in results] == [0, 1, 2] * 10


def test_the_first_error_cancels_closures_for_other_workers_too(make):
    coordinator, _ = make(2)
    go = threading.Event()
    running = coordinator.schedule(lambda: go.wait(LIMIT_S) and 1 // 0, worker=0)
    waiting = [coordinator.schedule(lambda: 1, worker=0) for _ in range(2)]
    go.set()
    with pytest.raises(ZeroDivisionError):
        coordinator.join()
    assert isinstance(running.error(), ZeroDivisionError)
    assert {type(result.error()) for result in waiting} <= {ClosureCancelledError, type(None)}
    assert coordinator.schedule(lambda: 2, worker=0).result() == 2


def test_a_worker_takes_nothing_while_it_may_not(make):
    taken = []

    def run():
        taken.append(current_worker().index)

    coordinator, _ = make(2)
    coordinator.restrict(lambda worker, are_some_gone: taken.count(worker) <= taken.count(1 - worker), limit=3)
    for _ in range(40):
        coordinator.schedule(run)
    coordinator.join()
    assert abs(taken.count(0) - taken.count(1)) <= 1 and len(taken) == 40


def test_of_a_round_without_a_worker_no_part_is_dropped():
    ended, statistics = [], Statistics(3)
    rounds = Rounds(3, 3, ended.append, statistics)
    queue = ClosureQueue(3, ClosureCancelledError)
    queue.may_take, queue.begin = rounds.may_take, rounds.begin
    queue.leave(2)
    closures = [Closure(lambda: None) for _ in range(4)]
    for closure in closures:
        queue.put(closure)

    def give(worker, closure):
        assert rounds.add(worker, closure.number, closure.number)
        queue.finish(closure)

    for worker in (0, 1):
        give(worker, queue.take(worker))
    last, taken = queue.take(0), []
    thread = threading.Thread(target=lambda: taken.append(queue.take(1)))
    thread.start()
    thread.join(0.2)
    assert not taken  # It is of the next round.
    give(0, last)
    thread.join(LIMIT_S)
    assert taken == closures[3:] and ended == [[0, 1, 2]] and statistics.snapshot().dropped == 0


def test_nothing_is_put_while_what_has_come_of_closures_is_settled(make):
    coordinator, _ = make(2)
    settling, go, settled = threading.Event(), threading.Event(), []

    def settle():
        settling.set()
        assert go.wait(LIMIT_S)
        settled.append(coordinator.is_idle)

    coordinator.restrict(lambda worker, are_some_gone: True, settle=settle)
    coordinator.schedule(lambda: 1)
    joining = threading.Thread(target=coordinator.join)
    joining.start()
    assert settling.wait(LIMIT_S)
    scheduling = threading.Thread(target=lambda: coordinator.schedule(lambda: 2))
    scheduling.start()
    scheduling.join(0.2)
    assert scheduling.is_alive() and coordinator.num_scheduled == 1 and not coordinator.done()
    go.set()
    scheduling.join(LIMIT_S)
    joining.join(LIMIT_S)
    assert settled == [True] and coordinator.num_scheduled == 2


def test_what_has_come_before_an_error_is_settled(make):
    settled = []
    coordinator, _ = make(2)
    coordinator.restrict(lambda worker, are_some_gone: True, settle=lambda: settled.append(coordinator.is_idle))
    coordinator.schedule(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        coordinator.join()
    assert settled == [True]
    coordinator.schedule(lambda: 1).result()
    wait_until(coordinator.done)
    assert set(settled) == {True} and len(settled) == 2


def test_statistics_tell_of_rounds_where_there_are_any(make):
    coordinator, _ = make()
    assert "rounds" not in str(coordinator.statistics.snapshot())
    assert "rounds" not in coordinator.statistics.snapshot().scalars
    coordinator.statistics.count(rounds=3, dropped=2)
    told = coordinator.statistics.snapshot()
    assert (told.rounds, told.dropped) == (3, 2) and told.scalars["dropped"] == 2
    assert str(told).endswith("; 3 rounds, 2 gradients dropped")


def test_closures_that_are_put_back_keep_their_order():
    queue = ClosureQueue(3, ClosureCancelledError)
    closures = [Closure(lambda: None) for _ in range(4)]
    for closure in closures:
        queue.put(closure)
    first, second, third = (queue.take(i) for i in range(3))
    for closure in (first, second):
        queue.put_back(closure)
    assert queue.oldest() == 0
    queue.finish(third)
    assert [queue.take(0) for _ in range(3)] == [closures[0], closures[1], closures[3]]


def test_closures_of_a_worker_that_goes_are_anybodys_in_their_order():
    queue = ClosureQueue(2, ClosureCancelledError)
    closures = [Closure(lambda: None, worker=i % 2) for i in range(5)]
    for closure in closures:
        queue.put(closure)
    taken = queue.take(0)
    queue.leave(0)
    queue.put_back(taken)
    assert [queue.take(1) for _ in range(5)] == closures
    for closure in closures:
        queue.finish(closure)
    queue.come_back(0)
    later = Closure(lambda: None, worker=0)
    queue.put(later)
    assert queue.take(1) is later


def test_only_if_all_workers_stay_away_for_too_long_it_is_an_error(make, monkeypatch):
    monkeypatch.setenv("TFDIST_WAIT_TIMEOUT_S", "0.2")
    coordinator, workers = make(2)

    def wait(is_over):
        while not is_over():
            time.sleep(0.001)

    for worker in workers:
        worker.recover = wait
    workers[0].loses = lambda: True
    end = time.monotonic() + 1
    while time.monotonic() < end or coordinator.statistics.snapshot().workers == 2:
        coordinator.schedule(lambda: time.sleep(0.001))
        coordinator.join()
    workers[1].loses = lambda: True
    coordinator.schedule(lambda: 1)
    with pytest.raises(TimeoutError, match=r"All workers have gone, and none has come back for 0\.2 s"):
        coordinator.join()


def test_who_waits_for_what_a_lost_worker_was_to_make_is_told(make):
    coordinator, workers = make(1)
    (made,) = coordinator.make_on_each(lambda: 1)
    assert made.result() == 1

    def refuse(is_over):
        raise ConnectionError("Nobody is there.")

    workers[0].recover, workers[0].loses = refuse, lambda: True
    coordinator.schedule(lambda: 1)
    with pytest.raises(ConnectionError, match="Nobody is there"):
        coordinator.join()
    assert isinstance(made.error(), ConnectionError)
