"""Ctrl-C in the middle of things: at each place of a block, or at a random time."""

import opcode
import signal
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any, Self, final

from tfdist_jax._internals import breaks_by_exceptions

# After these Python runs the handlers of signals.
_CHECKING = {"CALL", "CALL_FUNCTION_EX", "CALL_INTRINSIC_1", "CALL_KW", "JUMP_BACKWARD", "RESUME"}
# Python drops an exception that comes while it calls back from a garbage collection: another one comes after this time.
_AGAIN_S = 0.2


@final
class Interruption:
    """A block that is interrupted once, as by Ctrl-C; it ends there, and the program goes on behind it.

    SIGINT's handler is called, also one of the program's own; where SIGINT is ignored, as in a shell's background, KeyboardInterrupt is
    raised.

    Attributes:
        place: Where the block was interrupted: file, line and function; None if it has ended before.
    """

    def __init__(self, moment: "_Place | _Time") -> None:
        self._moment = moment
        self.place: tuple[str, int, str] | None = None

    def __enter__(self) -> Self:
        """Begin the block.

        Raises:
            RuntimeError: If this is not the main thread, the only one that handles signals.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("Only the main thread can be interrupted, as by Ctrl-C.")
        handler = signal.getsignal(signal.SIGINT)
        self._handler: Any = handler if callable(handler) else signal.default_int_handler
        self._before = signal.signal(self._moment.signal, self._interrupt)
        self._moment.begin(sys._getframe(1).f_code.co_filename)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        self._moment.end()
        signal.signal(self._moment.signal, self._before)
        self._moment.restore()
        return self.place is not None and error is not None and _is_interrupt(error)

    def _interrupt(self, number: int, frame: types.FrameType | None) -> None:
        if frame is not None and not _is_at_an_edge(frame) and not breaks_by_exceptions(frame):
            self.place = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
            self._handler(signal.SIGINT, frame)


def interruptions(step: int = 1) -> Iterator[Interruption]:
    """Yield blocks, each interrupted at a later place than the one before, until one has ended without.

    Places are where Python runs handlers of signals: in calls, at the beginning of functions and of another round in loops. Those in what
    the block calls count, not those in its own statements.

    Args:
        step: Every how manyth place is tried.

    Example:
        >>> values, lengths = [], set()
        >>> def append():
        ...     values.append(0)
        ...     values.append(1)
        >>> for interruption in interruptions():
        ...     values.clear()
        ...     with interruption:
        ...         append()
        ...     lengths.add(len(values))
        >>> sorted(lengths)
        [0, 1, 2]
    """
    number = 0
    while True:
        interruption = Interruption(_Place(number))
        yield interruption
        if interruption.place is None:
            return
        number += step


def interruption_after(seconds: float) -> Interruption:
    """Return a block that is interrupted after some time."""
    return Interruption(_Time(seconds))


@final
class _Place:
    """The place with a number, of those in functions that are called from now on.

    When a function of Python's returns to another one, Python runs no handlers before the result is kept. It does behind functions of
    C that have called it, which look the same here: so it is taken for a place, but not in the file of the block itself.
    """

    signal = signal.SIGINT

    def __init__(self, number: int) -> None:
        self._left = number
        self._last: dict[int, str] = {}

    def begin(self, file: str) -> None:
        self._file, self._before = file, sys.gettrace()
        # In Python 3.12 a process's first function that asks for its instructions is not told of them.
        if sys.version_info >= (3, 12):
            sys.settrace(lambda frame, event, arg: setattr(frame, "f_trace_opcodes", True))
            (lambda: None)()
        sys.settrace(self._enter)

    def end(self) -> None:
        sys.settrace(self._before)

    def restore(self) -> None:
        pass

    def _enter(self, frame: types.FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        if frame.f_code.co_filename == __file__:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: types.FrameType, event: str, arg: Any) -> Callable[..., Any]:
        if event == "return":
            self._last.pop(id(frame), None)
            if frame.f_back and id(frame.f_back) in self._last and frame.f_back.f_code.co_filename == self._file:
                self._last[id(frame.f_back)] = ""
        elif event == "opcode":
            before = self._last.get(id(frame), "RESUME")
            self._last[id(frame)] = opcode.opname[frame.f_code.co_code[frame.f_lasti]]
            if before in _CHECKING:
                self._pass(frame)
        return self._step

    def _pass(self, frame: types.FrameType) -> None:
        if self._left:
            self._left -= 1
            return
        sys.settrace(None)
        # Not the block's own handler, which may have another one around it.
        handler: Any = signal.getsignal(signal.SIGINT)
        handler(signal.SIGINT, frame)


@final
class _Time:
    """A time from now on. The system's timer says when: a thread would wait for the interpreter's lock, and come where that is given up.

    Another use of the timer, such as a time limit for tests, goes on behind the block with what is left of its time.
    """

    signal = signal.SIGALRM

    def __init__(self, seconds: float) -> None:
        self._seconds = max(seconds, 1e-6)

    def begin(self, file: str) -> None:
        self._began = time.monotonic()
        self._other, self._other_again = signal.setitimer(signal.ITIMER_REAL, self._seconds, _AGAIN_S)

    def end(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def restore(self) -> None:
        if self._other:
            left = self._other - (time.monotonic() - self._began)
            signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3), self._other_again)


# Where a block begins and ends it cannot be left by an exception.
_EDGES = {Interruption.__enter__.__code__, Interruption.__exit__.__code__}


def _is_at_an_edge(frame: types.FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code in _EDGES:
            return True
        frame = frame.f_back
    return False


def _is_interrupt(error: BaseException) -> bool:
    """Tell whether it is a KeyboardInterrupt; JAX 0.12 makes a ValueError of one where it compares keys of its caches."""
    return isinstance(error, KeyboardInterrupt) or "KeyboardInterrupt" in "".join(traceback.format_exception(error))
