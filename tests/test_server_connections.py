"""Calls between processes of parameter servers: what arrives, who is refused, and what becomes of calls whose other end goes."""

import concurrent.futures
import gc
import queue
import socket
import threading

import numpy as np
import pytest
from environment import LIMIT_S

from tfdist_jax._servers import _connections
from tfdist_jax._servers._connections import Caller, ConnectionLostError, Endpoint, Listener

HOST = "127.0.0.1"


class UnportableError(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} {second}")


class Answers:
    """What is called: `hold` waits for `released`."""

    def __init__(self):
        self.called, self.held, self.released = [], threading.Semaphore(0), threading.Event()

    def __call__(self, method, arguments):
        self.called.append(method)
        if method == "raise":
            raise arguments[0](*arguments[1:])
        if method == "hold":
            self.held.release()
            assert self.released.wait(LIMIT_S)
        if method == "address":
            return [array.ctypes.data for array in arguments]
        return arguments


@pytest.fixture
def answers():
    return Answers()


@pytest.fixture
def listener(answers):
    made = Listener(HOST, answers)
    yield made
    answers.released.set()
    made.close()
    gc.collect()


@pytest.fixture
def caller(listener):
    return Caller(listener.endpoint, LIMIT_S)


def call(caller, method, *arguments):
    with caller.calling(method, arguments) as under_way:
        return under_way.result()


def test_arrays_of_all_sizes_and_kinds_arrive(caller):
    sent = [np.arange(n, dtype=kind) for n in (0, 1, 1023, 1024, 1025, 3_000_000) for kind in ("f4", "i8", "u1")]
    sent += [np.float64(3).reshape(()), np.asfortranarray(np.arange(6000.0).reshape(60, 100)), np.arange(9000)[::3]]
    received, text = call(caller, "echo", sent, "text")
    assert text == "text"
    for given, got in zip(sent, received, strict=True):
        assert got.dtype == given.dtype and got.shape == given.shape
        np.testing.assert_array_equal(got, given)


def test_large_arrays_lie_where_devices_take_them_as_they_are(caller):
    assert all(address % 64 == 0 for address in call(caller, "address", np.zeros(2000), np.zeros(1_000_001, "i1")))


def test_calls_of_many_threads_get_their_own_answers(caller):
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda i: call(caller, "echo", np.full(20_000, i), i), range(64)))
    assert all(number == i and (array == i).all() for i, (array, number) in enumerate(answers))


def test_connections_are_used_again(caller, listener):
    for i in range(5):
        call(caller, "echo", i)
    assert len(listener._accepted) == 1


def test_errors_come_back_and_say_where_they_were_raised(caller):
    with pytest.raises(KeyError, match="cell") as raised:
        call(caller, "raise", KeyError, "cell")
    assert "in __call__" in raised.value.__notes__[0]
    assert call(caller, "echo", 1) == (1,)


def test_errors_that_cannot_be_copied_are_told(caller):
    with pytest.raises(RuntimeError, match="UnportableError: first second"):
        call(caller, "raise", UnportableError, "first", "second")


def test_what_cannot_be_read_is_an_error_of_the_call(caller, answers):
    with pytest.raises(ZeroDivisionError):
        call(caller, "echo", Unreadable())
    assert answers.called == []
    assert call(caller, "echo", 1) == (1,)


class Unreadable:
    def __reduce__(self):
        return divmod, (1, 0)


def test_who_does_not_know_the_key_calls_nothing(listener, answers, monkeypatch):
    told = queue.SimpleQueue()
    monkeypatch.setattr(_connections._log, "warning", lambda text, *values: told.put(text))
    stranger = Caller(Endpoint(HOST, listener.endpoint.port, b"wrong" * 8), LIMIT_S)
    with pytest.raises(ConnectionLostError):
        call(stranger, "echo", 1)
    assert answers.called == []
    assert "does not know the key" in told.get(timeout=LIMIT_S)


def test_who_says_nothing_or_nonsense_keeps_nobody_waiting(listener, caller):
    with (
        socket.create_connection((HOST, listener.endpoint.port)),
        socket.create_connection((HOST, listener.endpoint.port)) as babbler,
    ):
        babbler.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
        assert call(caller, "echo", 1) == (1,)


def test_nobody_listens_any_more(caller, listener):
    call(caller, "echo", 1)
    listener.close()
    for _ in range(2):
        with pytest.raises(ConnectionLostError):
            call(caller, "echo", 1)


def test_who_waits_for_an_answer_finds_that_the_other_end_has_gone(caller, listener, answers):
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(call, caller, "hold")
        assert answers.held.acquire(timeout=LIMIT_S)
        listener.close()
        with pytest.raises(ConnectionLostError):
            waiting.result(LIMIT_S)


def test_an_answer_that_nobody_waits_for_any_more_is_nobody_elses(caller, answers):
    with pytest.raises(RuntimeError, match="no longer"), caller.calling("hold", [1]):
        assert answers.held.acquire(timeout=LIMIT_S)
        raise RuntimeError("no longer wanted")
    answers.released.set()
    assert call(caller, "echo", 2) == (2,)


@pytest.mark.parametrize("large", [0, 100_000_000])
def test_a_process_that_takes_nothing_does_not_keep_its_callers(large):
    with socket.create_server((HOST, 0)) as frozen:  # The system takes connections for it.
        caller = Caller(Endpoint(HOST, frozen.getsockname()[1], b"key"), 0.2)
        with pytest.raises(ConnectionLostError):
            call(caller, "echo", np.zeros(large, "i1"))


def test_a_process_that_freezes_while_it_is_sent_something_is_lost(listener, monkeypatch):
    caller, frozen = Caller(listener.endpoint, 0.5), threading.Event()
    call(caller, "echo", 1)
    receive_array = _connections._Channel._receive_array
    monkeypatch.setattr(
        _connections._Channel, "_receive_array", lambda self, size: frozen.wait(LIMIT_S) and receive_array(self, size)
    )
    with pytest.raises(ConnectionLostError):
        call(caller, "echo", np.zeros(100_000_000, "i1"))
    frozen.set()


def test_a_wait_says_when_there_is_no_answer_yet(caller, answers):
    with caller.calling("hold", [3]) as under_way:
        assert not under_way.wait(0.05)
        answers.released.set()
        assert under_way.wait(LIMIT_S)
        assert under_way.result() == [3]
