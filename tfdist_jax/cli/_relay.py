"""Where a worker's output goes: to its log, and to the terminal."""

import contextlib
import errno
import fcntl
import os
import stat
import sys
import threading
from pathlib import Path
from typing import BinaryIO, final

from tfdist_jax.cli._messages import say

_CHUNK = 65536
_PIPE_BYTES = 1 << 20


def create_log(path: Path) -> None:
    """Make an empty log file in place of one that is there; in a folder that others can write, not through links of theirs.

    Raises:
        OSError: If that is not possible.
    """
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))


def _open_log(path: Path) -> int:
    """Open a log file to append to it, if it is still the one that was made."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK)
    status = os.fstat(log)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink != 1:
        os.close(log)
        raise PermissionError(errno.EPERM, "another user has put something else in its place")
    return log


@final
class Relay:
    """Copies what a process writes to its log file and, if asked to, to this process's own output.

    What the log does not take, since the disk is full, appears there in any case: the process itself never fails to write.

    Attributes:
        is_logged: Whether the log has taken everything.
        tail: The end of the output.
    """

    def __init__(self, log: Path, *, name: str, prefixed: bool, shown: bool, heading: bytes = b"") -> None:
        """Append to `log`.

        Args:
            log: The file, which is there.
            name: The process's.
            prefixed: Whether each line on the terminal begins with its name.
            shown: Whether the output appears there at all.
            heading: What the log says first.
        """
        self._path = log
        self._prefix = f"[{name}] ".encode()
        self._prefixed, self._shown = prefixed, shown
        self._threads: list[threading.Thread] = []
        self.is_logged, self.tail = True, b""
        self._noting = threading.Lock()
        self._log: int | None = None
        try:
            self._log = _open_log(log)
        except OSError as error:
            self._do_without_log(error)
        self._write_log(heading)

    def ends(self) -> tuple[int, int]:
        """Return file descriptors for a process's output and errors.

        They are terminals where this process's are, so that programs show their progress as they would without a launcher.
        """
        streams = own_streams()
        if not self._shown:
            end = self._end_for(streams[1])
            return end, os.dup(end)  # One, so that all stays in its order.
        return self._end_for(streams[0]), self._end_for(streams[1])

    def _end_for(self, stream: BinaryIO) -> int:
        is_terminal = self._shown and not self._prefixed and stream.isatty()
        ours, theirs = os.openpty() if is_terminal else os.pipe()
        if not is_terminal and hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):  # More than this user may have.
                fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        thread = threading.Thread(target=self._copy, args=(ours, stream), daemon=True)
        thread.start()
        self._threads.append(thread)
        return theirs

    def _copy(self, source: int, stream: BinaryIO) -> None:
        begun = b""
        while chunk := _read(source):
            self._write_log(chunk)
            with self._noting:
                self.tail = (self.tail + chunk)[-_CHUNK:]
            if self._prefixed:
                # Whole lines only, or those of several processes would mix.
                *lines, begun = (begun + chunk).split(b"\n")
                chunk = b"".join(self._prefix + line + b"\n" for line in lines)
            self._show(chunk, stream)
        if begun:
            self._show(self._prefix + begun + b"\n", stream)
        os.close(source)

    def _write_log(self, chunk: bytes) -> None:
        if self._log is None:
            return
        try:
            while chunk:
                chunk = chunk[os.write(self._log, chunk) :]
        except OSError as error:  # There may be room again later.
            self._do_without_log(error)

    def _do_without_log(self, error: OSError) -> None:
        if self.is_logged:
            self.is_logged = False
            say(f"{self._path} cannot be written: {error.strerror}. The output goes on here.")
            if not self._shown:
                self._shown = self._prefixed = True

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
        if self._log is not None and not any(thread.is_alive() for thread in self._threads):
            os.close(self._log)
            self._log = None


def _read(source: int) -> bytes:
    try:
        return os.read(source, _CHUNK)
    except OSError:
        return b""  # A terminal whose other end is closed.


def own_streams() -> tuple[BinaryIO, BinaryIO]:
    """Return this process's standard output and standard error, as bytes."""
    return sys.stdout.buffer, sys.stderr.buffer
