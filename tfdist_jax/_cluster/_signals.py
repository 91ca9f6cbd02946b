"""A signal is heard at once, also while the main thread is inside a call that lets no Python run, such as a compilation."""

import contextlib
import os
import signal
import socket
from collections.abc import Callable
from typing import Any, final


@final
class Bell:
    """Wakes the thread that waits for it; by hand, and by a signal."""

    def __init__(self) -> None:
        """Make a bell that is silent."""
        # The system's signal handler itself writes into it; Python's runs only when the main thread gets to it.
        self._heard, self._rung = socket.socketpair()
        self._rung.setblocking(False)
        self._number = 0
        self._before: tuple[Any, int] | None = None

    def hang_on(self, number: signal.Signals, handler: Callable[[], None]) -> None:
        """Let a signal ring, and call `handler` in the main thread, until `take_off`.

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
        old_fd = signal.set_wakeup_fd(self._rung.fileno(), warn_on_full_buffer=False)
        self._number, self._before = number, (old_handler, old_fd)

    @property
    def is_on(self) -> bool:
        """Whether it hangs on a signal."""
        return self._before is not None

    def take_off(self) -> None:
        """Let the signal do again what it did before, and ring no more; nobody may wait."""
        if self._before is not None:
            (handler, fd), self._before = self._before, None
            signal.set_wakeup_fd(fd)
            signal.signal(self._number, handler)
        self._heard.close()
        self._rung.close()

    def ring(self) -> None:
        """Wake who waits; may be called anywhere, also in a signal's handler."""
        with contextlib.suppress(OSError):  # It has rung often enough, or does no more.
            self._rung.send(bytes([0]))

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for a ring; tell whether the signal was among those that came."""
        self._heard.settimeout(timeout_s)
        try:
            heard = self._heard.recv(64)
        except TimeoutError:
            return False
        others = bytes(number for number in heard if number not in (0, self._number))
        if others and self._before is not None and self._before[1] != -1:
            with contextlib.suppress(BlockingIOError):
                os.write(self._before[1], others)
        return bool(self._number) and self._number in heard
