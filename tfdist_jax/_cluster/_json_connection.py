"""A connection between two processes: JSON objects, one a line."""

import contextlib
import json
import select
import socket
import threading
from typing import Any, final

_LINE_BYTES = 65536
# What is left of texts and lists, so that a message of several fits into a line: a character takes up to 12 bytes there.
_TEXT, _ITEMS = 1000, 50


@final
class JsonConnection:
    """A connection on which both ends send and receive messages."""

    def __init__(self, sock: socket.socket) -> None:
        """Take over an open connection."""
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._socket = sock
        self._reader = sock.makefile("rb")
        self._sending = threading.Lock()

    def send(self, **message: Any) -> None:
        """Send a message; of texts and lists that are too long only the beginning and the end arrive.

        Raises:
            OSError: If the other end is gone.
        """
        line = json.dumps(message)
        if len(line) >= _LINE_BYTES:
            line = json.dumps(_shorten(message))
        with self._sending:
            self._socket.sendall(line.encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """Wait for a message; an empty one means that the other end is gone.

        Raises:
            OSError: If the connection broke.
            ValueError: If what came is no message.
        """
        text = self._reader.readline(_LINE_BYTES)
        try:
            message = json.loads(text) if text else {}
        except RecursionError as error:
            raise ValueError("what came is nested too deeply for a message") from error
        if not isinstance(message, dict):
            raise ValueError(f"no JSON object came, but {text[:80]!r}")
        return message

    @property
    def is_quiet(self) -> bool:
        """Whether the other end has neither said anything nor hung up."""
        return not select.select([self._socket], [], [], 0)[0]

    def set_timeout(self, timeout_s: float | None) -> None:
        """Set how long sending and receiving may take, in seconds."""
        self._socket.settimeout(timeout_s)

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):  # The other end may have done so.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.close()
        self._socket.close()


def _shorten(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shorten(inner) for name, inner in value.items()}
    most = _TEXT if isinstance(value, str) else _ITEMS
    if not isinstance(value, str | list) or len(value) <= 2 * most:
        return value
    left_out = f"({len(value) - 2 * most} {'characters' if isinstance(value, str) else 'more'})"
    if isinstance(value, str):
        return f"{value[:most]} ... {left_out} ... {value[-most:]}"
    return [_shorten(inner) for inner in (*value[:most], left_out, *value[-most:])]
