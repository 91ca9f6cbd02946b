"""A connection between two processes: JSON objects, one a line."""

import contextlib
import json
import select
import socket
import threading
from typing import Any, final

_LINE_BYTES = 65536


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
        """Send a message.

        Raises:
            OSError: If the other end is gone.
        """
        with self._sending:
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """Wait for a message; an empty one means that the other end is gone.

        Raises:
            OSError: If the connection broke.
            ValueError: If what came is no message.
        """
        text = self._reader.readline(_LINE_BYTES)
        message = json.loads(text) if text else {}
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
