"""Where a worker's output goes: to its log, and to the terminal."""

import contextlib
import os
import sys
import threading
from pathlib import Path
from typing import BinaryIO, final

_CHUNK = 65536


@final
class Relay:
    """Copies what a process writes to its log file and, if asked to, to this process's own output."""

    def __init__(self, log: Path, *, prefix: str = "", shown: bool) -> None:
        """Append to `log`.

        Args:
            log: The file.
            prefix: What each line begins with on the terminal.
            shown: Whether the output appears there at all.
        """
        self._log = log.open("ab", buffering=0)
        self._prefix = prefix.encode()
        self._shown = shown
        self._threads: list[threading.Thread] = []

    def end_for(self, stream: BinaryIO) -> int:
        """Return a file descriptor for a process to write to; what it writes goes to `stream`, too, if it is to be shown.

        It is a terminal if `stream` is one, so that programs show their progress as they would without a launcher.
        """
        if not self._shown:
            return os.dup(self._log.fileno())
        is_terminal = not self._prefix and stream.isatty()
        ours, theirs = os.openpty() if is_terminal else os.pipe()
        thread = threading.Thread(target=self._copy, args=(ours, stream), daemon=True)
        thread.start()
        self._threads.append(thread)
        return theirs

    def _copy(self, source: int, stream: BinaryIO) -> None:
        begun = b""
        # A terminal whose other end is closed reads as an error.
        with contextlib.suppress(OSError):
            while chunk := os.read(source, _CHUNK):
                self._log.write(chunk)
                if self._prefix:
                    # Whole lines only, or those of several processes would mix.
                    *lines, begun = (begun + chunk).split(b"\n")
                    chunk = b"".join(self._prefix + line + b"\n" for line in lines)
                self._show(chunk, stream)
        if begun:
            self._show(self._prefix + begun + b"\n", stream)
        os.close(source)

    def _show(self, chunk: bytes, stream: BinaryIO) -> None:
        if not self._shown:
            return
        try:
            stream.write(chunk)
            stream.flush()
        except (OSError, ValueError):
            self._shown = False  # Nobody reads any more; the log goes on.

    def finish(self, timeout_s: float = 2) -> None:
        """Wait until everything is copied, but not for processes that the worker has left behind."""
        for thread in self._threads:
            thread.join(timeout_s)
        if not any(thread.is_alive() for thread in self._threads):
            self._log.close()


def own_streams() -> tuple[BinaryIO, BinaryIO]:
    """Return this process's standard output and standard error, as bytes."""
    return sys.stdout.buffer, sys.stderr.buffer
