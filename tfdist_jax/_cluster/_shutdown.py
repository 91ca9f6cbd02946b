"""A thread ends the program: through the main thread, which may have to clean up, and by force where that hears of nothing."""

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
class Ending:
    """The end of the program, which comes once, in the main thread or in another one."""

    def __init__(self, end: Callable[[], object], go_on: Callable[[], None]) -> None:
        """Be ready.

        Args:
            end: Raises SystemExit, or another error; or returns, and the program goes on.
            go_on: Called if `end` returns.
        """
        self._once = [end]
        self._go_on = go_on
        self._has_come = threading.Event()
        self._exit_code: int | None = None

    def come(self) -> None:
        """Let the end come, if nobody else has let it."""
        try:
            end = self._once.pop()
        except IndexError:
            return
        try:
            end()
            self._go_on()
        except BaseException as error:
            code = error.code if isinstance(error, SystemExit) else 1
            self._exit_code = code if isinstance(code, int) else int(code is not None)
            raise
        finally:
            self._has_come.set()

    def enforce(self, *, is_heard: bool, is_last: bool) -> None:
        """See to it that the end comes, and the process ends if that says so.

        Args:
            is_heard: Whether the main thread lets the end come when it gets SIGTERM.
            is_last: Whether the other processes are to end before this one, or JAX aborts them.
        """
        if is_heard:
            # Waits and Python code are interrupted; what is neither does not notice.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
            # Traced, as under coverage or a debugger, Python 3.11 never gets out of the next call of a function if the signal
            # came after the interpreter's lock was last released. Sleeping releases it.
            time.sleep(_ARRIVAL_S)
            self._has_come.wait(_HURRY_S)
        try:
            self.come()
        except SystemExit:
            pass
        except BaseException:
            traceback.print_exc()
        self._has_come.wait()
        if self._exit_code is None:
            return
        time.sleep(_HURRY_S * (is_heard + is_last))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(self._exit_code)
