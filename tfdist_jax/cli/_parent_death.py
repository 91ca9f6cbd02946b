"""Workers do not outlive their launcher."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self, final

PARENT = "TFDIST_JAX_LAUNCHER"
"""The launcher's process id, for the process that it starts."""

_PR_SET_PDEATHSIG = 1


def follow_launcher() -> bool:
    """Let this process end with the launcher that has started it, and return whether one has.

    On Linux the kernel sees to it. What this process starts has no launcher.
    """
    parent = os.environ.pop(PARENT, None)
    if parent is None:
        return False
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        sys.exit("tfdist-jax: the launcher has ended before this process has started.")
    return True


@final
class Reaper:
    """Ends process groups when this process is gone, even by SIGKILL. See `_reaper`."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("_reaper.py"))]
        # A session of its own: Ctrl-C is not for it.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, bufsize=1, start_new_session=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.__exit__(kind, error, traceback)

    def add(self, group: int) -> None:
        """Look after a process group."""
        self._say(f"+{group}")

    def remove(self, group: int) -> None:
        """End what is left of a process group whose first process has ended, and forget it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        self._say(f"-{group}")

    def _say(self, line: str) -> None:
        # Without the reaper the kernel still ends the workers.
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(f"{line}\n")
