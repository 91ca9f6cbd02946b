"""Arrays in memory that two processes of a machine share: each end gets its own copy, and nothing is left."""

import concurrent.futures
import contextlib
import dataclasses
import errno
import gc
import itertools
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import types

import numpy as np
import pytest
from environment import LIMIT_S

from tfdist_jax._servers import _channel, _connections, _shared_memory
from tfdist_jax._servers._channel import Channel
from tfdist_jax._servers._connections import Client, ConnectionLostError, Listener

pytestmark = pytest.mark.skipif(not _shared_memory.CAN_SHARE, reason="The system has no memory without a name.")
HOST = "127.0.0.1"
ENOUGH = _shared_memory._LEAST_BYTES  # Bytes that are worth it.


class Ends:
    """Two channels that are each other's other end."""

    def __init__(self, *channels):
        self.one, self.other = channels or (Channel(each, LIMIT_S) for each in socket.socketpair())

    def close(self):
        self.one.close()
        self.other.close()

    def send(self, *arrays):
        """Send arrays from one to the other, answer, and return what has come."""
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            sending = threads.submit(self.one.send, (b"text", [memoryview(each).cast("B") for each in arrays]))
            text, received = self.other.receive()
            sending.result(LIMIT_S)
        assert text == b"text"
        self.other.send((b"answer", []))
        assert self.one.receive() == (b"answer", [])
        return [np.frombuffer(each, np.uint8) for each in received]

    @property
    def size(self):
        """How many bytes one's memory has."""
        return self.one._outgoing._memory.nbytes


@pytest.fixture
def ends():
    with contextlib.closing(Ends()) as ends:
        yield ends


@pytest.fixture
def by_socket(monkeypatch):
    """The sizes of arrays that go over sockets."""
    sizes, receive_array = [], Channel._receive_array

    def note(self, size):
        sizes.append(size)
        return receive_array(self, size)

    monkeypatch.setattr(Channel, "_receive_array", note)
    return sizes


@pytest.fixture
def memory(monkeypatch):
    """The memory that is there, by its number."""
    allocate, allocated = os.memfd_create, []

    def note(*arguments):
        file = allocate(*arguments)
        allocated.append(identity_of(file))
        return file

    monkeypatch.setattr(os, "memfd_create", note)

    def find():
        gc.collect()
        with open("/proc/self/maps") as lines:
            mapped = [int(line.split()[4]) for line in lines if "memfd:tfdist_jax" in line]
        files = list(map(identity_of, map(int, os.listdir("/proc/self/fd"))))
        return [(mapped.count(number), files.count((device, number))) for device, number in allocated]

    return find


def identity_of(file):
    try:
        found = os.fstat(file)
    except OSError:  # Closed meanwhile, by another thread.
        return None
    return found.st_dev, found.st_ino


def bytes_of(value, size=ENOUGH):
    return np.full(size, value, np.uint8)


def test_arrays_of_all_sizes_lie_in_memory_that_has_been_accepted(ends, by_socket):
    sent = [bytes_of(i, size) for i, size in enumerate((1, 63, 64, 65, 4096, 100_001))]
    for each in (sent, sent, [array + 10 for array in sent]):
        received = ends.send(*each)
        assert all(array.ctypes.data % 64 == 0 for array in received)
        for given, got in zip(each, received, strict=True):
            np.testing.assert_array_equal(got, given)
    assert by_socket == [1, 63, 64, 65, 4096, 100_001]  # Those with which the memory has been offered.


def test_what_has_been_received_stays_as_it_is(ends, by_socket):
    held = [ends.send(bytes_of(i))[0] for i in range(6)]
    held[3][:] = 30  # It is the receiver's own.
    assert [set(each) for each in held] == [{0}, {1}, {2}, {30}, {4}, {5}]
    assert by_socket == [ENOUGH]


def test_both_directions_have_memory_of_their_own(ends):
    back = Ends(ends.other, ends.one)
    for i in range(3):
        assert ends.send(bytes_of(i))[0][0] == i
        assert back.send(bytes_of(100 + i))[0][0] == 100 + i
    assert ends.one._outgoing._is_shared and ends.other._outgoing._is_shared


def test_larger_messages_get_larger_memory(ends, by_socket, memory):
    for size in (ENOUGH, 3 * ENOUGH, 2 * ENOUGH, 3 * ENOUGH):
        for i in range(2):
            assert (ends.send(bytes_of(i, size))[0] == i).all()
    assert ends.size == 4 * ENOUGH and by_socket == [ENOUGH, 3 * ENOUGH]
    assert memory() == [(0, 0), (2, 2)]


def test_what_is_too_small_or_too_large_goes_over_the_socket(ends, by_socket, monkeypatch, memory):
    monkeypatch.setattr(_shared_memory, "_MOST_BYTES", 2 * ENOUGH)
    for size in (ENOUGH - 64, 2 * ENOUGH + 1) * 2:
        assert (ends.send(bytes_of(5, size))[0] == 5).all()
    assert by_socket == [ENOUGH - 64, 2 * ENOUGH + 1] * 2 and memory() == []


FAILURES = {
    "no file": (_shared_memory.os, "memfd_create", 1),
    "no memory": (_shared_memory.os, "posix_fallocate", 1),
    "not mapped by the sender": (_shared_memory.mmap, "mmap", 1),
    "not mapped by the receiver": (_shared_memory.mmap, "mmap", 2),
    "not sent": (_channel.socket, "send_fds", 1),
    "not received": (_channel.socket, "recv_fds", 1),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_where_memory_cannot_be_shared_the_socket_takes_all_and_it_is_tried_again(
    ends, by_socket, monkeypatch, memory, failure
):
    module, name, which = FAILURES[failure]
    works, calls = getattr(module, name), itertools.count(1)

    def fail(*arguments):
        if next(calls) % which:
            return works(*arguments)
        if name == "recv_fds":
            told, files, *others = works(*arguments)
            for file in files:
                os.close(file)
            return told, [], *others  # So does the system.
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(module, name, fail)
        for i in range(4):  # It is tried with the first and, since that failed, with the fourth.
            assert (ends.send(bytes_of(i))[0] == i).all()
    assert by_socket == [ENOUGH] * 4 and set(memory()) <= {(0, 0)}
    for i in range(7):
        assert (ends.send(bytes_of(i))[0] == i).all()
    assert by_socket == [ENOUGH] * 9 and memory()[-1] == (2, 2)


def test_a_python_that_cannot_share_memory_needs_none(monkeypatch, by_socket):
    monkeypatch.setattr(_channel, "CAN_SHARE", False)
    monkeypatch.delattr(os, "memfd_create")
    with contextlib.closing(Ends()) as ends:
        for i in range(3):
            assert (ends.send(bytes_of(i))[0] == i).all()
    assert by_socket == [ENOUGH] * 3


def test_messages_that_grow_get_new_memory_now_and_then(ends, by_socket, memory):
    for i in range(40):
        assert ends.send(bytes_of(i, ENOUGH + 4096 * i))[0][-1] == i
    assert len(by_socket) == len(memory()) == 3 and memory() == [(0, 0), (0, 0), (2, 2)]


def test_nothing_is_left_when_the_ends_have_gone(memory):
    ends = Ends()
    held = [*ends.send(bytes_of(1)), *ends.send(bytes_of(2))]
    assert memory() == [(2, 2)]
    ends.close()
    del ends
    assert [set(each) for each in held] == [{1}, {2}] and memory() == [(0, 0)]


def test_who_keeps_an_error_keeps_no_memory(memory):
    ends = Ends()
    ends.send(bytes_of(1))
    ends.other.close()
    with pytest.raises(OSError) as kept:
        ends.one.send((b"", [memoryview(bytes_of(1))]))
    ends.one.close()
    assert memory() == [(0, 0)] and kept.tb is not None and ends is not None


@pytest.fixture
def listener():
    made = Listener(HOST, lambda method, arguments: arguments, LIMIT_S)
    yield made
    made.close()
    gc.collect()


def echo(client, *arrays):
    with client.connect() as call:
        call.begin("echo", arrays)
        return call.finish()


def test_callers_of_many_threads_get_their_own_arrays(listener):
    client, start = Client(listener.endpoint, LIMIT_S), threading.Barrier(8)

    def call_often(number):
        start.wait(LIMIT_S)
        kept = [echo(client, bytes_of(8 * i + number)) for i in range(20)]
        return all((array == 8 * i + number).all() for i, (array,) in enumerate(kept))

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert all(threads.map(call_often, range(8)))


def test_who_is_on_another_machine_is_called_by_address(listener, by_socket):
    endpoint = dataclasses.replace(listener.endpoint, local=f"tfdist_jax-{secrets.token_hex(8)}")
    for _ in range(3):
        assert echo(Client(endpoint, LIMIT_S), bytes_of(1))[0][0] == 1
    assert by_socket == [ENOUGH] * 6


def test_who_listens_by_the_same_name_and_is_another_user_is_not_called(listener, by_socket, monkeypatch):
    endpoint = dataclasses.replace(listener.endpoint, local=f"tfdist_jax-{secrets.token_hex(8)}")
    with socket.socket(socket.AF_UNIX) as pretender:
        pretender.bind(f"\0{endpoint.local}")
        pretender.listen()
        with pytest.raises(ConnectionLostError):  # This user's own are believed to be there, and say nothing.
            echo(Client(endpoint, 0.2), bytes_of(1))
        monkeypatch.setattr(_connections, "_is_own", lambda connected: connected.family != socket.AF_UNIX)
        assert echo(Client(endpoint, LIMIT_S), bytes_of(1))[0][0] == 1
    assert by_socket == [ENOUGH] * 2


def test_other_users_are_not_listened_to(listener, by_socket, monkeypatch):
    monkeypatch.setattr(_connections, "_is_own", lambda connected: connected.family != socket.AF_UNIX)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(LIMIT_S)
        stranger.connect(f"\0{listener.endpoint.local}")
        assert stranger.recv(1000) == b""  # No challenge.
    assert echo(Client(listener.endpoint, LIMIT_S), bytes_of(1))[0][0] == 1
    assert by_socket == [ENOUGH] * 2


def test_where_there_are_no_local_sockets_the_address_is_enough(monkeypatch):
    bind = socket.socket.bind

    class Forbidden(socket.socket):
        def bind(self, address):
            if self.family == socket.AF_UNIX:
                raise PermissionError
            bind(self, address)

    with monkeypatch.context() as patched:
        patched.setattr(_connections.socket, "socket", Forbidden)
        listener = Listener(HOST, lambda method, arguments: arguments, LIMIT_S)
    with contextlib.closing(listener):
        assert listener.endpoint.local == ""
        assert echo(Client(listener.endpoint, LIMIT_S), bytes_of(1))[0][0] == 1
        gc.collect()


@pytest.mark.parametrize("user", [1234, 3_000_000_000, _connections._UNKNOWN_USER])
def test_users_are_told_apart(user, monkeypatch):
    credentials = types.SimpleNamespace(family=socket.AF_UNIX, getsockopt=lambda *what: struct.pack("iII", 1, user, 2))
    monkeypatch.setattr(_connections.os, "geteuid", lambda: user - 1)
    assert not _connections._is_own(credentials)
    monkeypatch.setattr(_connections.os, "geteuid", lambda: user)
    assert _connections._is_own(credentials) == (user != _connections._UNKNOWN_USER)


def test_who_may_use_no_local_sockets_calls_by_address(listener, monkeypatch):
    class Forbidden(socket.socket):
        def __init__(self, family=socket.AF_INET, *others, **options):
            if family == socket.AF_UNIX:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported")
            super().__init__(family, *others, **options)

    monkeypatch.setattr(_connections.socket, "socket", Forbidden)
    assert echo(Client(listener.endpoint, LIMIT_S), bytes_of(1))[0][0] == 1


def test_where_too_many_wait_the_address_is_taken(listener):
    endpoint = dataclasses.replace(listener.endpoint, local=f"tfdist_jax-{secrets.token_hex(8)}")
    with contextlib.ExitStack() as stack:
        busy = stack.enter_context(socket.socket(socket.AF_UNIX))
        busy.bind(f"\0{endpoint.local}")
        busy.listen(0)
        for _ in range(2):
            waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(f"\0{endpoint.local}")
        assert echo(Client(endpoint, LIMIT_S), bytes_of(1))[0][0] == 1


def test_a_caller_that_freezes_does_not_hold_who_answers(by_socket):
    ended = threading.Event()
    with contextlib.closing(Listener(HOST, lambda method, arguments: np.zeros(100_000_000, np.uint8), 0.3)) as listener:
        serve = listener._serve

        def watch(accepted):
            serve(accepted)
            ended.set()

        listener._serve = watch
        with Client(listener.endpoint, LIMIT_S).connect() as call:
            call.begin("answer", [])
            assert ended.wait(LIMIT_S)  # Nobody receives it.


_CALLER = """
import os, signal, sys
import numpy as np
from tfdist_jax._servers._connections import Client, Endpoint
host, port, key, local = sys.stdin.read().split()
client = Client(Endpoint(host, int(port), bytes.fromhex(key), local), float(sys.argv[1]))
for i in range(5):
    with client.connect() as call:
        call.begin("add", [np.full(1_000_000, i, "f4")])
        answer = call.finish()
        assert answer.shape == (1_000_000,) and (answer == i + 1).all()
with client.connect() as call:
    call.begin("add", [np.full(1_000_000, i, "f4")])
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_arrays_of_a_process_that_dies_are_kept_and_its_memory_is_not(by_socket, memory):
    kept = []

    def add(method, arguments):
        kept.append(arguments[0])
        return arguments[0] + 1

    with contextlib.closing(Listener(HOST, add, LIMIT_S)) as listener:
        endpoint = listener.endpoint
        given = f"{endpoint.host} {endpoint.port} {endpoint.key.hex()} {endpoint.local}"
        command = [sys.executable, "-c", _CALLER, str(LIMIT_S)]
        ended = subprocess.run(command, input=given, text=True, timeout=LIMIT_S, check=False)
        assert ended.returncode == -signal.SIGKILL
        end = time.monotonic() + LIMIT_S
        while memory() != [(0, 0)]:
            assert time.monotonic() < end
            time.sleep(0.01)
    assert by_socket == [4_000_000]
    assert [set(each) for each in kept[:5]] == [{float(i)} for i in range(5)]
