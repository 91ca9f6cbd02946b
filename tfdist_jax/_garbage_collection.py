"""Blocks in which Python's garbage collector waits: tracing, and imports. Without JAX, whose import is one."""

import contextlib
import gc
import os
import threading
from collections.abc import Iterator

_collector = threading.RLock()  # A signal's handler, which may trace, comes to the thread that holds it.
_pauses = 0
_was_collecting = True


@contextlib.contextmanager
def pausing_garbage_collection() -> Iterator[None]:
    """Let Python's garbage collector wait: it would look through what tracing makes again and again, a sixth to a third of the time.

    In all threads, until the last block ends.
    """
    global _pauses, _was_collecting
    try:
        with _collector:
            _pauses += 1
            if _pauses == 1:
                _was_collecting = gc.isenabled()
                gc.disable()
        yield
    finally:
        with _collector:
            if _pauses == 1 and _was_collecting:
                gc.enable()
            _pauses = max(_pauses - 1, 0)  # None in a child that was forked in the block.


def _collect_in_child() -> None:
    """Let a child collect that was forked while it waited."""
    global _collector, _pauses
    if _pauses and _was_collecting:
        gc.enable()
    _collector, _pauses = threading.RLock(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_collect_in_child)


@contextlib.contextmanager
def importing_modules() -> Iterator[None]:
    """Let Python's garbage collector wait while modules are imported, which stay: a twelfth of a start."""
    with pausing_garbage_collection():
        yield
        if _was_collecting and not gc.get_freeze_count():
            gc.freeze()  # Together these count everything as old, for the next whole collection.
            gc.unfreeze()
