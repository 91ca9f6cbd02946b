"""Calls that finalizers ask for: Python frees things in the middle of anything, also of a call of Ray's, which holds locks."""

import atexit
import functools
import logging
import queue
import threading
from collections.abc import Callable

_log = logging.getLogger("tfdist_jax")
# How long the program's end waits for a call that is being made.
_END_S = 10
_asked: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()  # A `put` may interrupt another one.
_is_over = threading.Event()


def call_soon(function: Callable[[], object]) -> None:
    """Let a function be called, after those before it, by the thread of `start_calls`; waits for nothing and takes no lock."""
    _asked.put(function)


@functools.cache
def start_calls() -> None:
    """Start the thread that calls functions, if it does not run; it ends with the program, before what is there already."""
    thread = threading.Thread(target=_call_all, name="tfdist_jax soon", daemon=True)
    thread.start()
    atexit.register(_end, thread)


def _call_all() -> None:
    while not _is_over.is_set():
        function = _asked.get()
        try:
            function()
        except Exception:
            _log.warning("What was freed here is still held elsewhere: its holder could not be told.", exc_info=True)
        del function  # It holds a strategy's processes.


def _end(thread: threading.Thread) -> None:
    _is_over.set()
    call_soon(lambda: None)
    thread.join(_END_S)
