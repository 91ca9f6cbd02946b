"""Calls from process to process, over connections that stay open.

Both ends show each other that they know a key, as `multiprocessing.connection` does it; nothing is unpickled before.
"""

import collections
import contextlib
import dataclasses
import logging
import os
import pickle
import secrets
import socket
import struct
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge, wait
from typing import Any, final

from tfdist_jax._servers._channel import Channel, pack

_log = logging.getLogger("tfdist_jax")
_BACKLOG = 128
_MOST_STRANGERS = 64
_UNKNOWN_USER = 65534  # So Linux calls those of whom a container knows nothing.
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
        local: The name of its socket for processes of the same machine, if there is one (Linux's, which is in no folder).
    """

    host: str
    port: int
    key: bytes = dataclasses.field(repr=False)
    local: str = ""


Handler = Callable[[str, Sequence[Any]], Any]


@final
class Listener:
    """Answers calls, those of each connection one after another, in a thread of its own.

    Attributes:
        endpoint: Where it does.
        handler: Called with a method's name and its arguments.
    """

    def __init__(self, host: str, handler: Handler, limit_s: float) -> None:
        """Listen.

        Args:
            host: This machine's address, in numbers, at which it listens; the port is a free one.
            handler: Called with a method's name and its arguments; callers get what it returns, or the error that it raises.
            limit_s: How long who connects has to show that he knows the key, and how long a caller's machine may be silent.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._sockets = [socket.create_server((host, 0), family=family, backlog=_BACKLOG)]
        local = f"tfdist_jax-{secrets.token_hex(16)}"
        listening = _listen_locally(local)
        if listening is None:
            local = ""
        else:
            self._sockets.append(listening)
        self.endpoint = Endpoint(host, self._sockets[0].getsockname()[1], secrets.token_bytes(32), local)
        self.handler, self._limit_s = handler, limit_s
        # Those who have shown that they know the key, and those who have not yet.
        self._known, self._strangers = set[socket.socket](), collections.deque[socket.socket]()
        self._lock, self._is_closed = threading.Lock(), False
        for each in self._sockets:
            threading.Thread(target=self._accept, args=(each,), name="listener", daemon=True).start()

    def close(self) -> None:
        """Answer no longer; who waits finds that this end has gone."""
        with self._lock:
            self._is_closed = True
            for each in (*self._sockets, *self._known, *self._strangers):
                _shut(each)
            for each in self._sockets:
                each.close()

    def _accept(self, listening: socket.socket) -> None:
        while not self._is_closed:
            with contextlib.ExitStack() as on_error:
                try:
                    accepted, _ = listening.accept()
                    on_error.callback(accepted.close)
                    if not _is_own(accepted):
                        continue
                    threading.Thread(target=self._serve, args=(accepted,), name="connection", daemon=True).start()
                    on_error.pop_all()
                except (OSError, RuntimeError):
                    if not self._is_closed:
                        _log.exception("A connection could not be accepted.")
                        time.sleep(_SOON_S)  # Such as until there are file descriptors and threads again.

    def _serve(self, accepted: socket.socket) -> None:
        try:
            with contextlib.closing(Channel(accepted, self._limit_s)) as channel:
                if self._get_to_know(accepted, channel):
                    channel.wait_for_ever()
                    while True:
                        self._answer_one(channel)
        except (EOFError, OSError):
            return  # Who has called has gone, and waits for nothing.
        finally:
            with self._lock:
                self._known.discard(accepted)

    def _get_to_know(self, accepted: socket.socket, channel: Channel) -> bool:
        """Return whether who has connected knows the key. Of too many who have not said so yet, the one that has waited longest goes."""
        with self._lock:
            self._strangers.append(accepted)
            if len(self._strangers) > _MOST_STRANGERS:
                _shut(self._strangers.popleft())
        patience = threading.Timer(self._limit_s, _shut, (accepted,))
        patience.daemon = True
        patience.start()
        try:
            _challenge(channel.connection, self.endpoint.key, (deliver_challenge, answer_challenge))
        except (AuthenticationError, EOFError, OSError) as error:
            _log.warning("Somebody who does not know the key has been refused: %r.", error)
            return False
        finally:
            patience.cancel()
            with self._lock, contextlib.suppress(ValueError):  # Others have come, and it has gone.
                self._strangers.remove(accepted)
        with self._lock:
            self._known.add(accepted)
            return not self._is_closed

    def _answer_one(self, channel: Channel) -> None:
        text, large = channel.receive()
        try:
            packed = pack((True, self.handler(*pickle.loads(text, buffers=large))))
        except BaseException as error:
            error.add_note("In the process that was asked:\n" + "".join(traceback.format_exception(error)))
            # Its traceback would keep what it was called with.
            packed = pack((False, _portable(error.with_traceback(None))))
        channel.send(packed)


def _listen_locally(name: str) -> socket.socket | None:
    """Return a socket to which this machine's processes can connect by that name, where there is such a thing."""
    if sys.platform != "linux":
        return None
    with contextlib.ExitStack() as on_error:
        try:
            listening = on_error.enter_context(socket.socket(socket.AF_UNIX))
            listening.bind(f"\0{name}")
            listening.listen(_BACKLOG)
        except OSError:
            _log.debug("Processes of this machine connect by its address.", exc_info=True)
            return None
        on_error.pop_all()
    return listening


def _connect(endpoint: Endpoint, limit_s: float) -> socket.socket:
    """Return a connection to who listens there, by a socket of this machine's own if they are on it."""
    connected = _connect_locally(endpoint.local) if endpoint.local and sys.platform == "linux" else None
    return connected or _connect_by_address(endpoint, limit_s)


def _connect_locally(name: str) -> socket.socket | None:
    """Return a connection to who listens so on this machine, if there is somebody, of the same user."""
    with contextlib.ExitStack() as on_error:
        try:
            connected = on_error.enter_context(socket.socket(socket.AF_UNIX))
            connected.setblocking(False)  # Where too many wait, that is an error.
            connected.connect(f"\0{name}")
            is_own = _is_own(connected)
        except OSError:  # It is on another machine, or has gone.
            return None
        if not is_own:
            return None
        on_error.pop_all()
    return connected


def _connect_by_address(endpoint: Endpoint, limit_s: float) -> socket.socket:
    with contextlib.ExitStack() as on_error:
        connected = on_error.enter_context(socket.create_connection((endpoint.host, endpoint.port), limit_s))
        if connected.getsockname() == connected.getpeername():
            raise ConnectionRefusedError("Nobody listens: a port of this machine's own has met itself.")
        on_error.pop_all()
    return connected


def _is_own(connected: socket.socket) -> bool:
    """Return whether the other end is this user's, as far as the system says: others could pass on what both ends say, and add to it."""
    if connected.family in (socket.AF_INET, socket.AF_INET6):
        return True
    _, user, _ = struct.unpack("iII", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return user == os.geteuid() != _UNKNOWN_USER


def _shut(connected: socket.socket) -> None:
    with contextlib.suppress(OSError):  # It has gone by itself.
        connected.shutdown(socket.SHUT_RDWR)


def _challenge(connection: Connection, key: bytes, steps: Sequence[Callable[[Connection, bytes], object]]) -> None:
    """Find out whether the other end knows the key, and show it that this one does.

    Raises:
        AuthenticationError: If one of them does not.
    """
    try:
        for step in steps:
            step(connection, key)
    except AssertionError as error:  # So Python 3.11 says that it is no challenge at all.
        raise AuthenticationError(str(error)) from error


def _portable(error: BaseException) -> BaseException:
    """Return an error that can leave the process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # Whatever its class does when it is copied.
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


@final
class Client:
    """Calls methods of another process, from any thread."""

    def __init__(self, endpoint: Endpoint, limit_s: float) -> None:
        """Connect when there is something to call.

        Args:
            endpoint: Where it answers.
            limit_s: How long it may take to receive, or send, the next bytes of what is on its way.
        """
        self.endpoint, self._limit_s = endpoint, limit_s
        self._idle: list[Channel] = []
        weakref.finalize(self, _close_all, self._idle)

    def connect(self) -> "PendingCall":
        """Return a connection on which nothing is called yet, one that has been used before if there is one.

        Raises:
            ConnectionLostError: If the process is not there, or does not know the key.
        """
        with _as_lost():
            return PendingCall(self._take_idle() or self._open(), self._idle)

    def _take_idle(self) -> Channel | None:
        while True:
            try:
                channel = self._idle.pop()
            except IndexError:
                return None
            if not channel.connection.poll(0):
                return channel
            channel.close()  # The other end has closed it meanwhile.

    def _open(self) -> Channel:
        channel = Channel(_connect(self.endpoint, self._limit_s), self._limit_s)
        try:
            _challenge(channel.connection, self.endpoint.key, (answer_challenge, deliver_challenge))
        except BaseException:
            channel.close()
            raise
        return channel


def _close_all(channels: list[Channel]) -> None:
    while channels:
        channels.pop().close()


@final
class PendingCall:
    """A call that is under way, or about to be: used in a `with` statement."""

    def __init__(self, channel: Channel, idle: list[Channel]) -> None:
        """Call on `channel`, and leave it in `idle` for the next one."""
        self._channel, self._idle = channel, idle
        self._is_over = True

    def __enter__(self) -> "PendingCall":
        return self

    def __exit__(self, *error: object) -> None:
        if self._is_over:
            self._idle.append(self._channel)
        else:
            self._channel.close()  # An answer that comes later is nobody's.

    def begin(self, method: str, arguments: Sequence[Any]) -> None:
        """Call a method.

        Raises:
            ConnectionLostError: If the process takes nothing.
        """
        packed = pack((method, arguments))
        self._is_over = False
        with _as_lost():
            self._channel.send(packed)

    def finish(self) -> Any:
        """Return the answer, or raise the error that the method has raised.

        Raises:
            ConnectionLostError: If the process has gone.
        """
        with _as_lost():
            text, large = self._channel.receive()
        self._is_over = True
        is_result, answer = pickle.loads(text, buffers=large)
        if not is_result:
            raise answer
        return answer

    @property
    def connection(self) -> Connection:
        """Where the answer comes."""
        return self._channel.connection


def answers_of(calls: Sequence[PendingCall], timeout_s: float) -> Iterator[Mapping[int, Any]]:
    """Wait for the answers of calls, and yield those that have come, by the calls' places; none of them each time that so long passes.

    Raises:
        ConnectionLostError: If a process has gone.
    """
    pending = {call.connection: place for place, call in enumerate(calls)}
    while pending:
        ready: list[Any] = wait(list(pending), timeout_s)
        yield {pending[connection]: calls[pending.pop(connection)].finish() for connection in ready}


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
