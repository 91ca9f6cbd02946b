"""Calls from process to process: arrays go as they lie in memory, over connections that stay open.

The connections are `multiprocessing.connection`'s, whose ends show each other that they know a key, which neither sends.
"""

import contextlib
import dataclasses
import logging
import os
import pickle
import secrets
import socket
import struct
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any, final

import numpy as np

_log = logging.getLogger("tfdist_jax")
_SMALL = 4096  # Bytes of an array that are not worth a message of their own.
_ALIGNMENT = 64  # Of memory that JAX takes for an array as it is.
_HANDSHAKE_S = 10.0
_BACKLOG = 128
_SOON_S = 0.2


class ConnectionLostError(RuntimeError):
    """The other process is not there any more, or takes and gives nothing."""


@final
@dataclasses.dataclass(frozen=True)
class Endpoint:
    """Where a process answers calls.

    Attributes:
        host: Its address, in numbers.
        port: Its port.
        key: What callers have to know.
    """

    host: str
    port: int
    key: bytes = dataclasses.field(repr=False)


Answer = Callable[[str, Sequence[Any]], Any]


@final
class Listener:
    """Answers calls, those of each connection one after another, in a thread of its own.

    Attributes:
        endpoint: Where it does.
        answer: Called with a method's name and its arguments.
    """

    def __init__(self, host: str, answer: Answer) -> None:
        """Listen.

        Args:
            host: This machine's address, in numbers, at which it listens; the port is a free one.
            answer: Called with a method's name and its arguments; callers get what it returns, or the error that it raises.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, 0), family=family, backlog=_BACKLOG)
        self.endpoint = Endpoint(host, self._socket.getsockname()[1], secrets.token_bytes(32))
        self.answer = answer
        self._lock, self._accepted = threading.Lock(), set[socket.socket]()
        self._is_closed = False
        threading.Thread(target=self._accept, name="listener", daemon=True).start()

    def close(self) -> None:
        """Answer no longer; who waits finds that this end has gone."""
        with self._lock:
            self._is_closed = True
            for each in (self._socket, *self._accepted):
                with contextlib.suppress(OSError):  # The other end has gone before.
                    each.shutdown(socket.SHUT_RDWR)
            self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                if self._is_closed:
                    return
                _log.exception("A connection could not be accepted.")
                time.sleep(_SOON_S)  # Such as until there are file descriptors again.
                continue
            threading.Thread(target=self._serve, args=(accepted,), name="connection", daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        with self._lock:
            self._accepted.add(accepted)
        try:
            with closing(_Channel(accepted, _HANDSHAKE_S)) as channel:
                deliver_challenge(channel.connection, self.endpoint.key)
                answer_challenge(channel.connection, self.endpoint.key)
                channel.limit(0)
                while True:
                    self._answer_one(channel)
        except AuthenticationError as error:
            _log.warning("Somebody who does not know the key has been refused: %s.", error)
        except (EOFError, OSError):
            return  # Who has called has gone, and waits for nothing.
        finally:
            with self._lock:
                self._accepted.discard(accepted)

    def _answer_one(self, channel: "_Channel") -> None:
        text, large = channel.receive()
        try:
            answered = (True, self.answer(*pickle.loads(text, buffers=large)))
        except BaseException as error:
            error.add_note("In the process that was asked:\n" + "".join(traceback.format_exception(error)))
            answered = (False, _portable(error))
        channel.send(answered)


def _portable(error: BaseException) -> BaseException:
    """Return an error that can leave the process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # Whatever its class does when it is copied.
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


@final
class Caller:
    """Calls methods of another process, from any thread."""

    def __init__(self, endpoint: Endpoint, limit_s: float) -> None:
        """Connect when there is something to call.

        Args:
            endpoint: Where it answers.
            limit_s: How long it may take to receive, or send, the next bytes of what is on its way.
        """
        self.endpoint, self._limit_s = endpoint, limit_s
        self._idle: list[_Channel] = []
        weakref.finalize(self, _close_all, self._idle)

    @contextlib.contextmanager
    def calling(self, method: str, arguments: Sequence[Any]) -> Iterator["Call"]:
        """Call a method, which is under way in the `with` block.

        Raises:
            ConnectionLostError: If the process is not there, or takes nothing.
        """
        with _as_lost():
            channel = self._take()
        call = Call(channel)
        try:
            with _as_lost():
                channel.send((method, arguments))
            yield call
        finally:
            if call.is_answered:
                self._idle.append(channel)
            else:
                channel.close()  # An answer that comes later is nobody's.

    def _take(self) -> "_Channel":
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        connected = socket.create_connection((self.endpoint.host, self.endpoint.port), self._limit_s)
        channel = _Channel(connected, self._limit_s)
        try:
            answer_challenge(channel.connection, self.endpoint.key)
            deliver_challenge(channel.connection, self.endpoint.key)
        except BaseException:
            channel.close()
            raise
        return channel


def _close_all(channels: "list[_Channel]") -> None:
    while channels:
        channels.pop().close()


@final
class Call:
    """A call that is under way."""

    def __init__(self, channel: "_Channel") -> None:
        """Wait for its answer."""
        self._channel = channel
        self.is_answered = False

    def wait(self, timeout_s: float) -> bool:
        """Return whether the answer comes within some seconds, or will not come at all."""
        with _as_lost():
            return self._channel.connection.poll(timeout_s)

    def result(self) -> Any:
        """Return the answer, or raise the error that the method has raised.

        Raises:
            ConnectionLostError: If the process has gone.
        """
        with _as_lost():
            text, large = self._channel.receive()
        self.is_answered = True
        is_result, answer = pickle.loads(text, buffers=large)
        if not is_result:
            raise answer
        return answer


@contextlib.contextmanager
def _as_lost() -> Iterator[None]:
    try:
        yield
    except (
        EOFError,
        OSError,
        AuthenticationError,
    ) as error:  # What another process at the same port says is not known.
        raise ConnectionLostError(f"The connection is lost: {error!r}.") from error


@final
class _Channel:
    """A connection, and its socket, over which large arrays go: the connection would copy them.

    Attributes:
        connection: It.
    """

    def __init__(self, connected: socket.socket, limit_s: float) -> None:
        """Send at once what there is to send; fail when nothing comes, or goes, for so long."""
        connected.settimeout(None)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._socket, self.connection = connected, Connection(os.dup(connected.fileno()))
        self.limit(limit_s)

    def limit(self, seconds: float) -> None:
        """Fail when nothing comes, or goes, for so long; 0 for ever."""
        whole, rest = divmod(seconds, 1)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(whole), int(rest * 1e6)))

    def close(self) -> None:
        self.connection.close()
        self._socket.close()

    def send(self, message: Any) -> None:
        """Send what pickle knows, and the memory of large arrays as it is."""
        large: list[memoryview] = []

        def keep(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes < _SMALL:
                return True
            large.append(raw)
            return False

        text = pickle.dumps(message, protocol=5, buffer_callback=keep)
        self.connection.send((text, [raw.nbytes for raw in large]))
        for raw in large:
            self._socket.sendall(raw)

    def receive(self) -> tuple[bytes, list[memoryview]]:
        """Return what `pickle.loads` takes."""
        text, sizes = self.connection.recv()
        return text, [self._receive_array(size) for size in sizes]

    def _receive_array(self, size: int) -> memoryview:
        memory = np.empty(size + _ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % _ALIGNMENT
        array, received = memory[start : start + size].data, 0
        while received < size:
            count = self._socket.recv_into(array[received:], 0, socket.MSG_WAITALL)
            if not count:
                raise EOFError
            received += count
        return array
