"""A connection between two processes: messages are JSON objects, one a line."""

import contextlib
import json
import select
import socket
import threading
from typing import Any, final

_LINE_BYTES = 65536


@final
class Line:
    """A connection on which both ends send and receive messages."""

    def __init__(self, connection: socket.socket) -> None:
        """Take over an open connection."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._connection = connection
        self._reader = connection.makefile("rb")
        self._sending = threading.Lock()

    def send(self, **message: Any) -> None:
        """Send a message.

        Raises:
            OSError: If the other end is gone.
        """
        with self._sending:
            self._connection.sendall(json.dumps(message).encode() + b"\n")

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
        return not select.select([self._connection], [], [], 0)[0]

    def has_time(self, timeout_s: float | None) -> None:
        """Let sending and receiving take no longer than so many seconds."""
        self._connection.settimeout(timeout_s)

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):  # The other end may have done so.
            self._connection.shutdown(socket.SHUT_RDWR)
        self._reader.close()
        self._connection.close()
