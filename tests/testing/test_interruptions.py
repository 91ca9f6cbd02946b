"""Ctrl-C in the middle of things."""

import signal
import sys
import threading
import time

import pytest

from tfdist_jax.testing import interruptions


def count_forever(counts):
    while True:
        counts.append(len(counts))


def test_a_block_is_interrupted_at_a_random_time_and_the_program_goes_on(chaos):
    lengths = set()
    for _ in range(20):
        counts = []
        with chaos.interruption(within_s=0.01) as interruption:
            count_forever(counts)
        lengths.add(len(counts))
        file, _, function = interruption.place
        assert (file, function) == (__file__, "count_forever")
    assert len(lengths) > 10
    assert len(chaos.happened) == 20


def test_none_comes_behind_a_block(chaos):
    before = signal.getsignal(signal.SIGINT)
    came = 0
    for _ in range(1000):
        with chaos.interruption(within_s=0.001) as interruption:
            for _ in range(chaos.random.randrange(1000)):
                sum(range(30))
        came += interruption.place is not None
        sum(range(300))
    assert 0 < came < 1000
    assert signal.getsignal(signal.SIGINT) is before


def test_handlers_of_a_program_are_called_and_restored(chaos):
    calls = []
    handler = lambda number, frame: calls.append(number)
    before = signal.signal(signal.SIGINT, handler)
    try:
        with chaos.interruption(within_s=0.01) as interruption:
            while not calls:
                sum(range(10))
        assert calls == [signal.SIGINT] and interruption.place is not None
        assert signal.getsignal(signal.SIGINT) is handler
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with chaos.interruption(within_s=0.01):
            count_forever([])
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_time_limit_by_the_same_timer_goes_on(chaos):
    came = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: came.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with chaos.interruption(within_s=0.001):
            count_forever([])
        while not came:
            time.sleep(0.001)
        with chaos.interruption(within_s=0.001):
            count_forever([])
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0) and len(came) == 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_other_errors_are_not_kept_back(chaos):
    with pytest.raises(ZeroDivisionError), chaos.interruption(within_s=100):
        1 / 0  # noqa: B018
    with pytest.raises(KeyboardInterrupt), chaos.interruption(within_s=100):
        raise KeyboardInterrupt
    for interruption in interruptions(step=10**6):
        with pytest.raises(ZeroDivisionError), interruption:
            1 / 0  # noqa: B018


def test_only_the_main_thread_is_interrupted(chaos):
    raised = []

    def enter():
        try:
            with chaos.interruption(within_s=1):
                pass
        except RuntimeError as error:
            raised.append(str(error))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert raised == ["Only the main thread can be interrupted, as by Ctrl-C."]


class Pair:
    def __init__(self):
        self.one = self.other = 0

    def change(self):
        self.one += 1
        self._log()
        self.other += 1

    def change_in_a_loop(self):
        for _ in range(3):
            self.one += 1
            self.other += 1

    def _log(self):
        return None


@pytest.mark.parametrize(("change", "is_safe"), [(Pair.change, False), (Pair.change_in_a_loop, True)])
def test_each_place_is_tried(change, is_safe):
    pair, found, places = Pair(), set(), []
    for interruption in interruptions():
        pair.__init__()
        with interruption:
            change(pair)
        found.add(pair.one == pair.other)
        places.append(interruption.place)
    assert found == ({True} if is_safe else {True, False})
    assert places[-1] is None and None not in places[:-1]
    assert {function for _, _, function in places[:-1]} == {change.__name__} | ({"_log"} if not is_safe else set())


def test_each_tenth_place_is_tried():
    def count(step):
        number = 0
        for interruption in interruptions(step):
            with interruption:
                count_to(100)
            number += 1
        return number

    assert count(1) > 100
    assert count(10) == -(-count(1) // 10) + (count(1) % 10 != 1)


def count_to(end):
    for _ in range(end):
        len(())


def test_tracing_goes_on_behind_a_block():
    seen = []
    sys.settrace(lambda frame, event, arg: seen.append(frame.f_code.co_name))
    try:
        for interruption in interruptions():
            with interruption:
                count_nothing()
        count_nothing()
    finally:
        sys.settrace(None)
    assert "count_nothing" in seen


def count_nothing():
    return 0
