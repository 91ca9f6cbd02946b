"""Sections of code into whose middle no signal handler's exception comes, such as a KeyboardInterrupt.

Python runs the handlers of signals in the main thread, between any two of its instructions. Where a step has been given
the memory of variables and its results are not stored yet, an exception would lose both. In a section handlers wait. Once there has
been one they also wait, for a moment, where an exception would break a cache of JAX's.
"""

import collections
import os
import signal
import threading
import time

# The functions of `signal`, which would make an enum of each number.
from _signal import getsignal, signal as set_signal  # pyright: ignore[reportMissingImports]
from _thread import get_ident, interrupt_main, start_new_thread
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any, Self, final

from tfdist_jax._internals import breaks_by_exceptions

# By these a program is told to end, or measures time. Handlers of others are not expected to raise.
_NAMES = ("HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "TERM", "VTALRM", "PROF", "XCPU", "BREAK")
_SIGNALS = tuple(int(getattr(signal, f"SIG{name}")) for name in _NAMES if hasattr(signal, f"SIG{name}"))

# After this time a signal comes again whose handler could not run.
_SOON_S = 0.001


def _interrupt_soon(number: int) -> None:
    time.sleep(_SOON_S)
    interrupt_main(number)  # pyright: ignore[reportArgumentType]  It takes any number.


@final
class _Deferring:
    """A handler that lets another one wait for the end of a section, or a moment where JAX is not ready; else it is as that other."""

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if _section.depth:
            _section.waiting.append((self.handler, number, frame))
            return
        if breaks_by_exceptions(frame):
            # By another thread: what this one is asked to do later it does at its next instruction, which is still in that frame.
            start_new_thread(_interrupt_soon, (number,))
            return
        try:
            self.handler(number, frame)
        finally:
            if _section.waiting:  # It came where a section was about to let them run.
                _section.deliver()

    def __repr__(self) -> str:
        return f"<{self.handler!r}, but not in the middle of a step>"


@final
class _Section:
    """The main thread's sections; in other threads, where no handlers run, it does nothing.

    The first section puts a `_Deferring` in the place of each handler, as does one that finds others. They stay: putting the
    handlers back would cost each step two calls of the system.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.waiting: collections.deque[tuple[Callable[..., Any], int, FrameType | None]] = collections.deque()
        self._handlers: tuple[Any, ...] = ()
        self.set_main_thread()

    def set_main_thread(self) -> None:
        """Take the present main thread for the one in which handlers run."""
        self._main = threading.main_thread().ident

    def is_main_thread(self) -> bool:
        """Whether this is the thread in which handlers run."""
        return get_ident() == self._main

    def __enter__(self) -> Self:
        if get_ident() != self._main:
            return self
        if not self.depth and tuple(map(getsignal, _SIGNALS)) != self._handlers:
            self._replace_handlers()
        self.depth += 1
        return self

    def __exit__(self, *error: object) -> None:
        if get_ident() != self._main:
            return
        self.depth = max(self.depth - 1, 0)  # 0 already if an interrupt has come as `delivering_signals` ended.
        if self.waiting and not self.depth:
            self.deliver()

    def _replace_handlers(self) -> None:
        for number in _SIGNALS:
            handler = getsignal(number)
            if callable(handler) and not isinstance(handler, _Deferring):
                set_signal(number, _Deferring(handler))
        self._handlers = tuple(map(getsignal, _SIGNALS))

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


@final
class _Delivering(AbstractContextManager[None]):
    """The block of `delivering_signals`: no generator, which an interrupt would leave to end when it is freed, in the middle of others."""

    __slots__ = ("_depth",)

    def __enter__(self) -> None:
        self._depth = 0
        if not (_section.depth and _section.is_main_thread()):
            return
        self._depth, _section.depth = _section.depth, 0
        try:
            if _section.waiting:
                _section.deliver()
        except BaseException:
            _section.depth = self._depth
            raise

    def __exit__(self, *error: object) -> None:
        if self._depth:
            _section.depth = self._depth


def delivering_signals() -> AbstractContextManager[None]:
    """Inside a block that defers signals, let their handlers run at once again."""
    return _Delivering()
