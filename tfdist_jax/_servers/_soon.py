"""Calls that finalizers ask for: Python frees things in the middle of anything, also of a call of Ray's, which holds locks."""

import functools
import logging
import queue
import threading
from collections.abc import Callable

_log = logging.getLogger("tfdist_jax")
_asked: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()  # What is put may interrupt what puts.


def call_soon(function: Callable[[], object]) -> None:
    """Let a function be called, after those before it, by the thread of `start_calls`; waits for nothing and takes no lock."""
    _asked.put(function)


@functools.cache
def start_calls() -> None:
    """Start the thread that calls functions, if it does not run."""
    threading.Thread(target=_call_all, name="tfdist_jax-soon", daemon=True).start()


def _call_all() -> None:
    while True:
        function = _asked.get()
        try:
            function()
        except Exception:
            _log.warning("What is freed here stays where it is held: that could not be told.", exc_info=True)
        del function  # It holds the strategy's processes.
