"""Shutdown from a thread: through the main thread, which may have to clean up, and by force where that gets no signal."""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import final

# How long the main thread has, to hear of it, and then to come to its end.
_HURRY_S = 5.0

# How long a signal may be on its way.
_ARRIVAL_S = 0.1


@final
class Shutdown:
    """Shuts the program down once, in the main thread or in another one."""

    def __init__(self, shut_down: Callable[[], object], go_on: Callable[[], None]) -> None:
        """Prepare a shutdown.

        Args:
            shut_down: Raises SystemExit, or another error; or returns, and the program goes on.
            go_on: Called if `shut_down` returns.
        """
        self._pending = [shut_down]
        self._go_on = go_on
        self._is_over = threading.Event()
        self._exit_code: int | None = None

    def run(self) -> None:
        """Shut down, unless another thread has done so."""
        try:
            shut_down = self._pending.pop()
        except IndexError:
            return
        try:
            shut_down()
            self._go_on()
        except BaseException as error:
            code = error.code if isinstance(error, SystemExit) else 1
            self._exit_code = code if isinstance(code, int) else int(code is not None)
            raise
        finally:
            self._is_over.set()

    def force(self, *, is_heard: bool, is_last: bool) -> None:
        """Shut down from another thread, and exit if the shutdown says so.

        Args:
            is_heard: Whether the main thread calls `run` when it gets SIGTERM.
            is_last: Whether the other processes are to end before this one, or JAX aborts them.
        """
        if is_heard:
            # Waits and Python code are interrupted; what is neither does not notice.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
            # Traced, as under coverage or a debugger, Python 3.11 never gets out of the next call of a function if the signal
            # came after the interpreter's lock was last released. Sleeping releases it.
            time.sleep(_ARRIVAL_S)
            self._is_over.wait(_HURRY_S)
        try:
            self.run()
        except SystemExit:
            pass
        except BaseException:
            traceback.print_exc()
        self._is_over.wait()
        if self._exit_code is None:
            return
        time.sleep(_HURRY_S * (is_heard + is_last))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(self._exit_code)
