"""Calls between processes of parameter servers: what arrives, who is refused, and what becomes of calls whose other end goes."""

import concurrent.futures
import contextlib
import dataclasses
import gc
import multiprocessing.connection
import pickle
import queue
import socket
import threading
import time
import weakref

import ml_dtypes
import numpy as np
import pytest
from environment import LIMIT_S

from tfdist_jax._servers import _channel, _connections
from tfdist_jax._servers._connections import Client, ConnectionLostError, Endpoint, Listener, answers_of

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
        if method == "refuse":
            raise KeyError("refused")
        if method == "lambda":
            return lambda: None
        if method == "address":
            return [array.ctypes.data for array in arguments]
        return arguments


@pytest.fixture
def answers():
    return Answers()


@pytest.fixture
def listener(answers):
    made = Listener(HOST, answers, LIMIT_S)
    yield made
    answers.released.set()
    made.close()
    gc.collect()


@pytest.fixture(params=["address", "machine"])
def client(listener, request):
    """Callers from another machine, and from the same one."""
    if request.param == "machine" and not listener.endpoint.local:
        pytest.skip("Only Linux has sockets that are in no folder.")
    local = listener.endpoint.local if request.param == "machine" else ""
    return Client(dataclasses.replace(listener.endpoint, local=local), LIMIT_S)


def call(client, method, *arguments):
    with client.connect() as pending:
        pending.begin(method, arguments)
        return pending.finish()


def test_arrays_of_all_sizes_and_kinds_arrive(client):
    sent = [np.arange(n, dtype=kind) for n in (0, 1, 1023, 1024, 1025, 3_000_000) for kind in ("f4", "i8", "u1")]
    sent += [np.float64(3).reshape(()), np.asfortranarray(np.arange(6000.0).reshape(60, 100)), np.arange(9000)[::3]]
    received, text = call(client, "echo", sent, "text")
    assert text == "text"
    for given, got in zip(sent, received, strict=True):
        assert got.dtype == given.dtype and got.shape == given.shape
        np.testing.assert_array_equal(got, given)


def test_large_arrays_lie_where_devices_take_them_as_they_are(client):
    assert all(address % 64 == 0 for address in call(client, "address", np.zeros(2000), np.zeros(1_000_001, "i1")))


def test_calls_of_many_threads_get_their_own_answers(client):
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda i: call(client, "echo", np.full(20_000, i), i), range(64)))
    assert all(number == i and (array == i).all() for i, (array, number) in enumerate(answers))


def test_connections_are_used_again(client):
    with client.connect() as first:
        first.begin("echo", [1])
        first.finish()
    with client.connect() as second:
        assert second.connection is first.connection
    with client.connect() as third, client.connect() as fourth:
        assert third.connection is first.connection is not fourth.connection


def test_types_that_numpy_does_not_know_go_as_they_lie_in_memory(client):
    sent = np.arange(60_000).reshape(200, 300).astype(ml_dtypes.bfloat16).T
    (text, large), (received,) = _channel.pack(sent), call(client, "echo", sent)
    assert [raw.nbytes for raw in large] == [sent.nbytes] and len(text) < 500
    assert received.dtype == sent.dtype
    np.testing.assert_array_equal(received, sent)


def test_connections_that_the_other_end_has_closed_are_not_used(listener, client):
    call(client, "echo", 1)
    (connected,) = listener._known
    _connections._shut(connected)
    while not client._idle[0].connection.poll(0):
        time.sleep(0.01)
    assert call(client, "echo", 2) == (2,)


def test_errors_come_back_and_say_where_they_were_raised(client):
    with pytest.raises(KeyError, match="cell") as raised:
        call(client, "raise", KeyError, "cell")
    assert "in __call__" in raised.value.__notes__[0]
    assert call(client, "echo", 1) == (1,)


def test_errors_that_cannot_be_copied_are_told(client):
    with pytest.raises(RuntimeError, match="UnportableError: first second"):
        call(client, "raise", UnportableError, "first", "second")


def test_answers_that_cannot_be_copied_are_errors(client):
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        call(client, "lambda")
    assert call(client, "echo", 1) == (1,)


def test_what_a_failed_call_was_sent_is_not_kept(client, monkeypatch):
    received, receive_array = [], _channel.Channel._receive_array

    def note(self, size):
        array = receive_array(self, size)
        received.append(weakref.ref(array.obj))
        return array

    monkeypatch.setattr(_channel.Channel, "_receive_array", note)
    gc.disable()
    try:
        with pytest.raises(KeyError):
            call(client, "refuse", np.zeros(10_000))
        call(client, "echo", 1)  # The thread has left what it did before.
        assert [each() for each in received] == [None]
    finally:
        gc.enable()


def test_what_cannot_be_read_is_an_error_of_the_call(client, answers):
    with pytest.raises(ZeroDivisionError):
        call(client, "echo", Unreadable())
    assert answers.called == []
    assert call(client, "echo", 1) == (1,)


class Unreadable:
    def __reduce__(self):
        return divmod, (1, 0)


def test_who_does_not_know_the_key_calls_nothing(listener, answers, monkeypatch):
    told = queue.SimpleQueue()
    monkeypatch.setattr(_connections._log, "warning", lambda text, *values: told.put(text))
    stranger = Client(Endpoint(HOST, listener.endpoint.port, b"wrong" * 8), LIMIT_S)
    with pytest.raises(ConnectionLostError):
        call(stranger, "echo", 1)
    assert answers.called == []
    assert "does not know the key" in told.get(timeout=LIMIT_S)


def test_who_is_asked_has_to_know_the_key_too(listener):
    with socket.create_server((HOST, 0)) as pretender:
        client = Client(Endpoint(HOST, pretender.getsockname()[1], b"key" * 8), LIMIT_S)

        def pretend():
            accepted, _ = pretender.accept()
            with multiprocessing.connection.Connection(accepted.detach()) as connection:
                connection.send_bytes(b"#CHALLENGE#{sha256}" + b"0" * 32)
                connection.recv_bytes()
                connection.send_bytes(b"#WELCOME#")
                connection.recv_bytes()
                connection.send_bytes(b"{sha256}" + b"1" * 32)
                assert connection.recv_bytes() == b"#FAILURE#"

        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            pretended = threads.submit(pretend)
            with pytest.raises(ConnectionLostError, match="digest"):
                call(client, "echo", 1)
            pretended.result(LIMIT_S)


def test_what_another_service_says_at_the_port_is_no_answer():
    with socket.create_server((HOST, 0)) as service:
        client = Client(Endpoint(HOST, service.getsockname()[1], b"key" * 8), LIMIT_S)
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            connecting = threads.submit(call, client, "echo", 1)
            accepted, _ = service.accept()
            with multiprocessing.connection.Connection(accepted.detach()) as connection:
                connection.send_bytes(b"hello")
                with pytest.raises(ConnectionLostError):
                    connecting.result(LIMIT_S)


def test_strangers_who_say_nothing_go_again(answers):
    listener = Listener(HOST, answers, 0.2)
    address = (HOST, listener.endpoint.port)
    with contextlib.closing(listener), socket.create_connection(address) as silent:
        silent.settimeout(LIMIT_S)
        while silent.recv(1000):  # The challenge, and then the end.
            pass


def test_of_many_strangers_the_oldest_go_and_callers_come_through(listener, client):
    address = (HOST, listener.endpoint.port)
    with contextlib.ExitStack() as stack:
        strangers = [
            stack.enter_context(socket.create_connection(address)) for _ in range(2 * _connections._MOST_STRANGERS)
        ]
        strangers[0].settimeout(LIMIT_S)
        while strangers[0].recv(1000):
            pass
        assert call(client, "echo", 1) == (1,)


def test_a_listener_goes_on_after_what_it_could_not_accept(client, monkeypatch, caplog):
    start, failed = threading.Thread.start, []

    def fail_once(thread):
        if thread.name == "connection" and not failed:
            failed.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail_once)
    with pytest.raises(ConnectionLostError):
        call(client, "echo", 1)
    assert call(client, "echo", 2) == (2,)
    assert failed and "could not be accepted" in caplog.text


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="There is no IPv6.")
def test_addresses_of_ipv6(answers):
    with contextlib.closing(Listener("::1", answers, LIMIT_S)) as listener:
        assert call(Client(listener.endpoint, LIMIT_S), "echo", 1) == (1,)
        gc.collect()


def test_who_says_nothing_or_nonsense_keeps_nobody_waiting(listener, client):
    with (
        socket.create_connection((HOST, listener.endpoint.port)),
        socket.create_connection((HOST, listener.endpoint.port)) as babbler,
    ):
        babbler.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
        assert call(client, "echo", 1) == (1,)


def test_nobody_listens_any_more(client, listener):
    call(client, "echo", 1)
    listener.close()
    for _ in range(2):
        with pytest.raises(ConnectionLostError):
            call(client, "echo", 1)


def test_who_waits_for_an_answer_finds_that_the_other_end_has_gone(client, listener, answers):
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(call, client, "hold")
        assert answers.held.acquire(timeout=LIMIT_S)
        listener.close()
        with pytest.raises(ConnectionLostError):
            waiting.result(LIMIT_S)


def test_an_answer_that_nobody_waits_for_any_more_is_nobody_elses(client, answers):
    with pytest.raises(RuntimeError, match="no longer"), client.connect() as pending:
        pending.begin("hold", [1])
        assert answers.held.acquire(timeout=LIMIT_S)
        raise RuntimeError("no longer wanted")
    answers.released.set()
    assert call(client, "echo", 2) == (2,)


def test_a_process_that_takes_nothing_does_not_keep_its_callers():
    with socket.create_server((HOST, 0)) as frozen, pytest.raises(ConnectionLostError):
        call(
            Client(Endpoint(HOST, frozen.getsockname()[1], b"key"), 0.2), "echo", 1
        )  # The system takes the connection.


def test_a_process_that_freezes_while_it_is_sent_something_is_lost(client, monkeypatch):
    client, frozen = Client(client.endpoint, 0.5), threading.Event()
    call(client, "echo", 1)
    receive_array = _channel.Channel._receive_array
    monkeypatch.setattr(
        _channel.Channel, "_receive_array", lambda self, size: frozen.wait(LIMIT_S) and receive_array(self, size)
    )
    with pytest.raises(ConnectionLostError):
        call(client, "echo", np.zeros(100_000_000, "i1"))
    frozen.set()


def test_answers_are_given_as_they_come(client, answers):
    with client.connect() as slow, client.connect() as quick:
        slow.begin("hold", [3])
        quick.begin("echo", [4])
        found = answers_of([slow, quick], 0.05)
        assert next(found) == {1: [4]}
        assert next(found) == {}
        answers.released.set()
        assert [each for each in found if each] == [{0: [3]}]


def test_a_loss_is_told_while_others_are_still_at_work(client, answers):
    other = Listener(HOST, answers, LIMIT_S)
    with client.connect() as slow, Client(other.endpoint, LIMIT_S).connect() as lost:
        slow.begin("hold", [])
        lost.begin("hold", [])
        assert answers.held.acquire(timeout=LIMIT_S) and answers.held.acquire(timeout=LIMIT_S)
        other.close()
        with pytest.raises(ConnectionLostError):
            next(answers_of([slow, lost], LIMIT_S))
