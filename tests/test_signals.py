"""Handlers of signals wait for the end of a section, and all of them run."""

import _thread
import os
import signal
import sys
import threading
import time

import jax
import jax.numpy as jnp
import pytest
from environment import LIMIT_S

from tfdist_jax import _signals
from tfdist_jax._internals import breaks_by_exceptions
from tfdist_jax._signals import deferring_signals, delivering_signals
from tfdist_jax.testing import interruptions


@pytest.fixture
def heard():
    """The numbers that a handler of SIGUSR1 has heard."""
    numbers = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGUSR1, before)


def raise_signal():
    os.kill(os.getpid(), signal.SIGUSR1)


def test_a_handler_runs_when_the_outermost_section_has_ended(heard):
    with deferring_signals():
        with deferring_signals():
            raise_signal()
        raise_signal()
        assert not heard
    assert len(heard) == 2
    raise_signal()
    assert len(heard) == 3


def test_a_handler_that_somebody_keeps_meanwhile_does_what_it_did(heard):
    with deferring_signals():
        pass
    kept = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    with deferring_signals():
        raise_signal()
    assert not heard
    signal.signal(signal.SIGUSR1, kept)
    raise_signal()
    assert len(heard) == 1


def test_inside_a_section_a_block_may_be_told_at_once(heard):
    with deferring_signals():
        raise_signal()
        with delivering_signals():
            assert len(heard) == 1
            raise_signal()
            assert len(heard) == 2
        raise_signal()
        assert len(heard) == 2
    assert len(heard) == 3


def test_an_interrupt_anywhere_leaves_no_section_open(heard):
    def run():
        with deferring_signals(), deferring_signals(), delivering_signals(), deferring_signals():
            len("")

    places = 0
    for interruption in interruptions():
        with interruption:
            run()
        places += 1
        assert _signals._section.depth == 0
        raise_signal()
        assert len(heard) == places
    assert places > 10


def test_each_handler_runs_though_one_before_it_raises(heard):
    def fail(number, frame):
        heard.append("failing")
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, fail)
    try:
        with pytest.raises(KeyboardInterrupt), deferring_signals():
            os.kill(os.getpid(), signal.SIGINT)
            raise_signal()
        assert sorted(map(str, heard)) == [str(int(signal.SIGUSR1)), "failing"]
        with deferring_signals():  # What was left behind, if anything, is none of the next section's.
            raise_signal()
        assert len(heard) == 3
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_that_is_set_inside_a_section_stays_and_waits_for_the_next_ones_end(heard):
    other = []
    with deferring_signals():
        signal.signal(signal.SIGUSR1, lambda number, frame: other.append(number))
    raise_signal()
    assert len(other) == 1
    with deferring_signals():
        raise_signal()
        assert len(other) == 1
    assert len(other) == 2 and not heard


def test_an_error_of_the_block_comes_first(heard):
    with pytest.raises(ValueError, match="mine"), deferring_signals():
        raise_signal()
        raise ValueError("mine")
    assert len(heard) == 1


def test_other_threads_have_no_sections(heard):
    def work():
        with deferring_signals():
            inside.set()
            leave.wait()

    inside, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    raise_signal()
    assert len(heard) == 1
    leave.set()
    thread.join()


@pytest.mark.parametrize("during_start", [False, True])
def test_where_an_exception_would_break_a_cache_a_handler_waits_for_a_moment(during_start, monkeypatch):
    """Without that, JAX 0.10 takes the function for one that calls itself."""

    def start_slowly(*arguments):
        monkeypatch.undo()
        _thread.start_new_thread(*arguments)
        time.sleep(0.05)  # The signal comes again before the handler that has to wait has ended.

    if during_start:
        monkeypatch.setattr(_signals, "start_new_thread", start_slowly)
    handled = []

    def handle(number, frame):
        handled.append(breaks_by_exceptions(frame))
        raise KeyboardInterrupt

    def interrupt(frame, event, arg):
        if event == "call" and breaks_by_exceptions(frame):
            sys.settrace(None)
            signal.getsignal(signal.SIGUSR1)(signal.SIGUSR1, frame)

    own, before = signal.signal(signal.SIGUSR1, handle), sys.gettrace()
    try:
        with deferring_signals():
            pass
        function = jax.jit(lambda x: jnp.sin(x) * 2)
        with pytest.raises(KeyboardInterrupt):
            sys.settrace(interrupt)
            function(1.0)
            deadline = time.monotonic() + LIMIT_S
            while time.monotonic() < deadline:
                time.sleep(0.001)
    finally:
        sys.settrace(before)
        signal.signal(signal.SIGUSR1, own)
    assert handled == [False]
    assert float(function(1.0)) == pytest.approx(1.6829419)
