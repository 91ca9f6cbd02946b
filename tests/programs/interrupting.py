"""Raise KeyboardInterrupt in the middle of things: at the k-th place of a block, or at a random time."""

import opcode
import signal
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

# After these Python runs the handlers of signals.
_CHECKING = {"CALL", "CALL_FUNCTION_EX", "CALL_INTRINSIC_1", "JUMP_BACKWARD", "RESUME"}


class InterruptingAt:
    """A block in which the handler of SIGINT is called once, at a place where Python would call it.

    Attributes:
        place: Where it was called: file, line and function; None if the block has fewer places.
    """

    def __init__(self, number: int, *, outside: types.CodeType | None = None) -> None:
        """Call it at the place with a number, of those that are not in the code `outside`."""
        self._left = number
        self._outside = outside
        self._last: dict[int, str] = {}
        self.place: tuple[str, int, str] | None = None

    def __enter__(self) -> "InterruptingAt":
        # In Python 3.12 a process's first function that asks for its instructions is not told of them.
        if sys.version_info >= (3, 12):
            sys.settrace(self._enter)
            (lambda: None)()
        sys.settrace(self._enter)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def _enter(self, frame: Any, event: str, arg: Any) -> Callable[..., Any] | None:
        if frame.f_code is self._outside:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: Any, event: str, arg: Any) -> Callable[..., Any]:
        if event == "return":
            self._last.pop(id(frame), None)
        elif event == "opcode":
            before = self._last.get(id(frame))
            self._last[id(frame)] = opcode.opname[frame.f_code.co_code[frame.f_lasti]]
            if before in _CHECKING:
                self._pass(frame)
        return self._step

    def _pass(self, frame: Any) -> None:
        if self._left:
            self._left -= 1
            return
        sys.settrace(None)
        self.place = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        handler: Any = signal.getsignal(signal.SIGINT)
        handler(signal.SIGINT, frame)


def listen_to_interrupts() -> None:
    """Let SIGINT raise KeyboardInterrupt, also in a process of a shell's background, where it would be ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupt_at_every_place(action: Callable[[], Any], check: Callable[[bool], Any], step: int = 1) -> dict[Any, int]:
    """Call `action` again and again, each time interrupted at a later place, until it has no more of them.

    Args:
        action: What is interrupted, but for what it does itself with results: after a call of a function of Python's, Python runs no
            handlers before they are kept.
        check: Called afterwards, with whether `action` was interrupted; says what was found.
        step: Every how manyth place is tried.

    Returns:
        What `check` has found, and how often.
    """
    found: dict[Any, int] = {}
    number = 0
    while True:
        interrupting, interrupted = InterruptingAt(number, outside=getattr(action, "__code__", None)), False
        try:
            with interrupting:
                action()
        except KeyboardInterrupt:
            interrupted = True
        result = check(interrupted)
        found[result] = found.get(result, 0) + 1
        if interrupting.place is None:
            return found
        number += step


def run_until_interrupted(action: Callable[[], Any], seconds: float) -> None:
    """Call `action` until a timer interrupts it.

    Python drops an exception that comes while it calls back from a garbage collection: the timer goes on until one has come through.
    """
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, 0.2)
        while True:
            action()
    except KeyboardInterrupt:
        pass
    except Exception:  # JAX 0.12 makes a ValueError of it where it compares keys of its caches.
        if "KeyboardInterrupt" not in traceback.format_exc():
            raise
    finally:
        while True:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0)
                break
            except KeyboardInterrupt:
                continue
