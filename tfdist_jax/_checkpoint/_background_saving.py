"""Saving that goes on while the program does; what goes wrong there is raised where the program is."""

import logging
import sys
import threading
import weakref
from collections.abc import Callable
from typing import final

from tfdist_jax._internals import before_threads_end

_log = logging.getLogger("tfdist_jax")

# After an error other processes may never do their part, and are to hear of the error.
_AFTER_ERROR_S = 30.0


@final
class BackgroundSaving:
    """One thing at a time is saved in the background; the program does not end before it is."""

    def __init__(self) -> None:
        """Save nothing yet."""
        self._what = ""
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        end = weakref.WeakMethod(self._end)
        before_threads_end(lambda: (wait := end()) and wait())

    def start(self, what: str, finish: Callable[[], None]) -> None:
        """Call `finish` in the background, when what was started before is done.

        Args:
            what: What is saved, for messages, such as "step 3 in /folder".
            finish: Saves it.

        Raises:
            RuntimeError: If what was started before has failed.
        """
        self.wait()
        self._what = what
        self._thread = threading.Thread(target=self._work, args=(finish,), daemon=True, name=f"saving {what}")
        self._thread.start()

    def _work(self, finish: Callable[[], None]) -> None:
        try:
            finish()
        except BaseException as error:
            self._failure = error

    def check(self) -> None:
        """Raise if saving has failed, without waiting for it."""
        if self._thread is not None and not self._thread.is_alive():
            self.wait()

    def wait(self) -> None:
        """Wait until all is saved; what has failed is raised once."""
        if self._thread is not None:
            self._thread.join()
        self._thread, failure, self._failure = None, self._failure, None
        if failure is not None:
            raise RuntimeError(f"Saving {self._what} has failed: {type(failure).__name__}: {failure}") from failure

    def _end(self) -> None:
        if self._thread is None:
            return
        self._thread.join(None if getattr(sys, "last_value", None) is None else _AFTER_ERROR_S)
        if self._thread.is_alive():
            _log.error("The program fails before %s is saved.", self._what)
        elif self._failure is not None:
            # Nobody is left who could be told otherwise.
            _log.error("Saving %s has failed: %s: %s", self._what, type(self._failure).__name__, self._failure)
