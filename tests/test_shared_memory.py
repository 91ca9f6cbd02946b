"""Arrays in memory that two processes of a machine share: nobody's are written over, and nothing is left."""

import concurrent.futures
import contextlib
import dataclasses
import gc
import os
import socket
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest
from environment import LIMIT_S

from tfdist_jax._servers import _channel, _shared_memory
from tfdist_jax._servers._channel import Channel
from tfdist_jax._servers._connections import Client, Endpoint, Listener

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Only Linux has memory without a name.")
HOST = "127.0.0.1"
ENOUGH = _shared_memory._LEAST_BYTES  # Bytes that are worth it.


@pytest.fixture
def ends():
    """Two channels that are each other's other end."""
    with contextlib.closing(Ends()) as ends:
        yield ends


class Ends:
    def __init__(self):
        self.one, self.other = (Channel(each, LIMIT_S) for each in socket.socketpair())

    def close(self):
        self.one.close()
        self.other.close()

    def send(self, *arrays):
        """Send arrays from one to the other, and return what comes."""
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            sending = threads.submit(self.one.send, (b"text", [memoryview(each).cast("B") for each in arrays]))
            text, received = self.other.receive()
            sending.result(LIMIT_S)
        assert text == b"text"
        return [np.frombuffer(each, np.uint8) for each in received]

    def answer(self):
        """Send a message back, with which memory is given back."""
        self.other.send((b"", []))
        self.one.receive()

    @property
    def blocks(self):
        """How many bytes each block has."""
        return [each.nbytes for each in self.one._lender._blocks]


def bytes_of(value, size=ENOUGH):
    return np.full(size, value, np.uint8)


@pytest.fixture
def socket_only(monkeypatch):
    """The arrays that go over sockets."""
    sizes, receive_array = [], Channel._receive_array

    def note(self, size):
        sizes.append(size)
        return receive_array(self, size)

    monkeypatch.setattr(Channel, "_receive_array", note)
    return sizes


def test_arrays_of_all_sizes_lie_in_one_block(ends, socket_only):
    sent = [bytes_of(i, size) for i, size in enumerate((1, 63, 64, 65, 4096, 100_001))]
    received = ends.send(*sent)
    assert all(each.ctypes.data % 64 == 0 for each in received)
    for given, got in zip(sent, received, strict=True):
        np.testing.assert_array_equal(got, given)
    assert len(ends.blocks) == 1 and not socket_only


def test_memory_is_written_again_when_it_has_been_given_back(ends):
    for i in range(5):
        (received,) = ends.send(bytes_of(i))
        assert (received == i).all()
        del received
        ends.answer()
    assert len(ends.blocks) == 1


def test_memory_that_is_used_is_not_written(ends, socket_only):
    held = []
    for i in range(6):
        held += ends.send(bytes_of(i))
        ends.answer()
    assert [set(each) for each in held] == [{i} for i in range(6)]
    assert len(ends.blocks) == 2 and socket_only == [ENOUGH] * 4


def test_an_array_keeps_the_others_of_its_message(ends):
    first, second = ends.send(bytes_of(1), bytes_of(2))
    part = second[5:7].reshape(2, 1)
    del first, second
    ends.answer()
    assert not ends.one._lender._free
    ends.send(bytes_of(3, 2 * ENOUGH))
    assert part.tolist() == [[2], [2]]
    del part
    ends.answer()
    assert ends.one._lender._free == {0, 1}


def test_arrays_of_jax_keep_what_they_are_computed_from(ends):
    (received,) = ends.send(bytes_of(7))
    array = jax.device_put(received)
    del received
    ends.answer()
    assert not ends.one._lender._free
    ends.send(bytes_of(8))
    assert (np.asarray(array) == 7).all()


def test_larger_messages_get_larger_memory(ends, socket_only):
    kept = ends.send(bytes_of(0))
    for i in range(1, 4):
        (received,) = ends.send(bytes_of(i, i * ENOUGH))
        assert (received == i).all()
        del received
        ends.answer()
    assert ends.blocks == [ENOUGH, 3 * ENOUGH] and not socket_only
    assert (kept[0] == 0).all()


def test_what_is_too_small_or_too_large_goes_over_the_socket(ends, socket_only, monkeypatch):
    monkeypatch.setattr(_shared_memory, "_MOST_BYTES", 2 * ENOUGH)
    for size in (ENOUGH - 64, 2 * ENOUGH + 1):
        assert (ends.send(bytes_of(5, size))[0] == 5).all()
    assert socket_only == [ENOUGH - 64, 2 * ENOUGH + 1] and not ends.blocks


@pytest.mark.parametrize("fails", ["memfd_create", "posix_fallocate"])
def test_where_there_is_no_memory_to_share_the_socket_takes_it(ends, socket_only, monkeypatch, fails):
    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, fails, fail)
    before = open_files()
    assert (ends.send(bytes_of(5))[0] == 5).all()
    assert socket_only == [ENOUGH] and open_files() == before
    monkeypatch.undo()
    assert (ends.send(bytes_of(6))[0] == 6).all()
    assert ends.blocks == [ENOUGH]


def open_files():
    return len(os.listdir("/proc/self/fd"))


def mapped():
    with open("/proc/self/maps") as lines:
        return sum("memfd:tfdist_jax" in line for line in lines)


def test_nothing_is_left_when_the_ends_have_gone():
    gc.collect()
    files, memory = open_files(), mapped()
    ends = Ends()
    held = ends.send(bytes_of(1)) + ends.send(bytes_of(2))
    assert (
        mapped() == memory + 4 and open_files() == files + 8
    )  # Each end has two of its socket, and Python's `mmap` keeps one.
    ends.close()
    del ends
    assert [set(each) for each in held] == [{1}, {2}]
    del held
    gc.collect()
    assert open_files() == files and mapped() == memory


def test_a_message_that_cannot_be_sent_leaves_no_file(ends):
    files = open_files()
    _shut(ends.other)
    with pytest.raises(OSError):
        ends.one.send((b"", [memoryview(bytes_of(1))]))
    assert open_files() == files + 1  # The memory's own.


def _shut(channel):
    channel._socket.shutdown(socket.SHUT_RDWR)


def test_memory_that_does_not_come_is_the_end_of_the_connection(ends, monkeypatch):
    monkeypatch.setattr(_channel.socket, "send_fds", lambda connected, texts, files: connected.send(*texts))
    with pytest.raises(OSError, match="too many files"):
        ends.send(bytes_of(1))


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


def test_who_is_on_another_machine_is_called_by_address(listener, socket_only):
    endpoint = dataclasses.replace(listener.endpoint, local="tfdist_jax-of another machine")
    assert echo(Client(endpoint, LIMIT_S), bytes_of(1))[0][0] == 1
    assert socket_only == [ENOUGH] * 2


def test_who_listens_by_the_same_name_has_to_know_the_key(listener):
    with socket.socket(socket.AF_UNIX) as pretender:
        pretender.bind("\0tfdist_jax-of somebody else")
        pretender.listen()
        client = Client(
            Endpoint(HOST, listener.endpoint.port, listener.endpoint.key, "tfdist_jax-of somebody else"), 0.2
        )
        with pytest.raises(RuntimeError, match="lost"):
            echo(client, bytes_of(1))


def test_callers_of_many_threads_keep_their_own_arrays(listener, socket_only):
    client, start = Client(listener.endpoint, LIMIT_S), threading.Barrier(8)

    def call_often(number):
        start.wait(LIMIT_S)
        kept = [echo(client, bytes_of(8 * i + number)) for i in range(20)]
        return all((array == 8 * i + number).all() for i, (array,) in enumerate(kept))

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert all(threads.map(call_often, range(8)))


_CALLER = """
import os, signal, sys
import numpy as np
from tfdist_jax._servers._connections import Client, Endpoint
host, port, key, local = sys.stdin.read().split()
with Client(Endpoint(host, int(port), bytes.fromhex(key), local), float(sys.argv[1])).connect() as call:
    call.begin("keep", [np.full(1_000_000, 5.0, "f4")])
    (answer,) = call.finish()
    assert answer.shape == (1_000_000,) and (answer == 6).all()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_arrays_of_a_process_that_has_died_are_still_there(socket_only):
    kept = []

    def keep(method, arguments):
        kept.append(arguments[0])
        return [arguments[0] + 1]

    memory = mapped()
    with contextlib.closing(Listener(HOST, keep, LIMIT_S)) as listener:
        endpoint = listener.endpoint
        given = f"{endpoint.host} {endpoint.port} {endpoint.key.hex()} {endpoint.local}"
        ended = subprocess.run(
            [sys.executable, "-c", _CALLER, str(LIMIT_S)], input=given, text=True, timeout=LIMIT_S, check=False
        )
    assert ended.returncode == -9 and not socket_only
    assert (kept[0] == 5).all() and kept[0].shape == (1_000_000,)
    kept.clear()
    for thread in threading.enumerate():
        if thread.name == "connection":
            thread.join(LIMIT_S)
    gc.collect()
    assert mapped() == memory
