"""Signals that wake a thread at once, also while the main thread is inside a call that runs no Python, such as a compilation."""

import contextlib
import os
import signal
import socket
from collections.abc import Callable
from typing import Any, final


@final
class SignalWakeup:
    """Wakes the thread that waits on it: by a call of `wake`, or by a signal."""

    def __init__(self) -> None:
        """Make a wakeup that is bound to no signal."""
        # The system's signal handler itself writes into it; Python's runs only when the main thread gets to it.
        self._receiver, self._sender = socket.socketpair()
        self._sender.setblocking(False)
        self._number = 0
        self._before: tuple[Any, int] | None = None

    def install(self, number: signal.Signals, handler: Callable[[], None]) -> None:
        """Let a signal wake the waiting thread, and call `handler` in the main thread, until `remove`.

        Raises:
            RuntimeError: If this is not the main thread.
        """
        try:
            old_handler = signal.signal(number, lambda *_: handler())
        except ValueError as error:
            raise RuntimeError(
                f"{number.name} can be waited for by the main thread only: do so there, or say by a function `watch` when "
                "to stop."
            ) from error
        old_fd = signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        self._number, self._before = number, (old_handler, old_fd)

    @property
    def is_installed(self) -> bool:
        """Whether it is bound to a signal."""
        return self._before is not None

    def remove(self) -> None:
        """Restore the signal's former handler, and wake nobody any more; no thread may wait."""
        if self._before is not None:
            (handler, fd), self._before = self._before, None
            signal.set_wakeup_fd(fd)
            signal.signal(self._number, handler)
        self._receiver.close()
        self._sender.close()

    def wake(self) -> None:
        """Wake the thread that waits; may be called anywhere, also in a signal's handler."""
        with contextlib.suppress(OSError):  # Enough wakeups are waiting, or it is closed.
            self._sender.send(bytes([0]))

    def wait(self, timeout_s: float | None) -> bool:
        """Wait to be woken; return whether by the signal."""
        self._receiver.settimeout(timeout_s)
        try:
            heard = self._receiver.recv(64)
        except TimeoutError:
            return False
        others = bytes(number for number in heard if number not in (0, self._number))
        if others and self._before is not None and self._before[1] != -1:
            with contextlib.suppress(BlockingIOError):
                os.write(self._before[1], others)
        return bool(self._number) and self._number in heard
