"""Sections of code into whose middle no signal handler's exception comes, such as a KeyboardInterrupt.

Python runs the handlers of signals in the main thread, between any two of its instructions. Where a step has been given
the memory of variables and its results are not stored yet, an exception would lose both. In a section handlers wait.
"""

import _signal  # pyright: ignore[reportMissingImports] - The functions of `signal`, which would make an enum of each number.
import collections
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Self, final

# By these a program is told to end, or measures time. Handlers of others are not expected to raise.
_NAMES = ("HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "TERM", "VTALRM", "PROF", "XCPU", "BREAK")
_SIGNALS = tuple(int(getattr(signal, f"SIG{name}")) for name in _NAMES if hasattr(signal, f"SIG{name}"))


@final
class _Deferring:
    """A handler that lets another one wait for the end of a section; outside of one it is as that other."""

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if _section.depth:
            _section.waiting.append((self.handler, number, frame))
        else:
            self.handler(number, frame)


def _deferring(handler: Any) -> _Deferring:
    return handler if isinstance(handler, _Deferring) else _Deferring(handler)


@final
class _Section:
    """The main thread's sections; in other threads, where no handlers run, it does nothing.

    A handler that raises while a section begins or ends may leave a `_Deferring` in place. It does what its handler does, and
    the next section takes it away.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.waiting: collections.deque[tuple[Callable[..., Any], int, FrameType | None]] = collections.deque()
        self._handlers: tuple[Any, ...] = ()
        self._changes: list[tuple[int, Any, _Deferring]] = []
        self.set_main_thread()

    def set_main_thread(self) -> None:
        """Take the present main thread for the one in which handlers run."""
        self._main = threading.main_thread().ident

    def is_main_thread(self) -> bool:
        """Whether this is the thread in which handlers run."""
        return threading.get_ident() == self._main

    def __enter__(self) -> Self:
        if threading.get_ident() != self._main:
            return self
        if not self.depth:
            handlers = tuple(map(_signal.getsignal, _SIGNALS))
            if handlers != self._handlers:
                given = [
                    (number, handler) for number, handler in zip(_SIGNALS, handlers, strict=True) if callable(handler)
                ]
                self._changes = [
                    (number, deferring.handler, deferring)
                    for number, deferring in ((n, _deferring(h)) for n, h in given)
                ]
                self._handlers = handlers
            for number, _, deferring in self._changes:
                _signal.signal(number, deferring)
        self.depth += 1
        return self

    def __exit__(self, *error: object) -> None:
        if threading.get_ident() != self._main:
            return
        self.depth -= 1
        if self.depth:
            return
        try:
            for number, handler, deferring in self._changes:
                if _signal.getsignal(number) is deferring:
                    _signal.signal(number, handler)
        finally:
            if self.waiting:
                self.deliver()

    def deliver(self) -> None:
        """Call the handlers that wait, each also if one before it raises."""
        handler, number, frame = self.waiting.popleft()
        try:
            handler(number, frame)
        finally:
            if self.waiting:
                self.deliver()


_section = _Section()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_section.set_main_thread)


def deferring_signals() -> _Section:
    """Let the handlers of signals wait until the block has ended."""
    return _section


@contextlib.contextmanager
def delivering_signals() -> Iterator[None]:
    """Inside a block that defers signals, let their handlers run at once again."""
    if not (_section.depth and _section.is_main_thread()):
        yield
        return
    depth, _section.depth = _section.depth, 0
    try:
        if _section.waiting:
            _section.deliver()
        yield
    finally:
        _section.depth = depth
