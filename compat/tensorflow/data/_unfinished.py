"""Files and folders that are being written: locked meanwhile, so that what a stopped process has left can be told from them.

A writer holds a lock on what it writes; the system lets it go with the process, however that ends.
"""

import contextlib
import glob
import os
import shutil
import uuid
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar, final

Result = TypeVar("Result")

_ENDING = ".part"


def beside(path: Path) -> Path:
    """Return a name that nobody else has for what is going to be `path`."""
    return path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}{_ENDING}")


def remove_rests(path: Path) -> None:
    """Remove what stopped processes have left that were writing `path`."""
    for rest in path.parent.glob(f"{glob.escape(path.name)}.*{_ENDING}"):
        remove_unless_held(rest)


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Let those who give names in a folder do it one after the other, as far as the system can do that."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        _lock(handle, waits=True)
        yield
    finally:
        os.close(handle)


@final
class Reading:
    """Lets nobody remove a folder as long as this object is there, as far as the system can do that."""

    def __init__(self, path: Path) -> None:
        """Hold a folder.

        Raises:
            FileNotFoundError: If it is not there.
        """
        handle = os.open(path, os.O_RDONLY)
        _lock(handle, is_shared=True)
        weakref.finalize(self, os.close, handle)


def remove_unless_held(path: Path) -> None:
    """Remove a file or folder, unless a process is writing or reading it."""
    with contextlib.suppress(OSError):  # It has been removed by another one, or cannot be: then it stays.
        handle = os.open(path, os.O_RDONLY)
        try:
            if _lock(handle):
                _remove(path)
        finally:
            os.close(handle)


@final
class Unfinished:
    """A file or folder that is there, and goes again unless it is finished; also where the program forgets it."""

    def __init__(self, path: Path, close: Callable[[], None]) -> None:
        """Hold a file or folder; `close`, which must not refer to this object, closes what is open of it before it is removed."""
        self.path = path
        handle = os.open(path, os.O_RDONLY)
        _lock(handle)
        self._let_go = weakref.finalize(self, _abandon, path, handle, close, os.getpid())

    def finish(self, publish: Callable[[], Result]) -> Result:
        """Return what `publish` returns, which gives what is written its name; after an error it is removed."""
        try:
            result = publish()
        except BaseException:
            self.discard()
            raise
        found = self._let_go.detach()
        if found is not None:
            os.close(found[2][1])
        return result

    def discard(self) -> None:
        """Remove it; nothing happens if it is finished."""
        self._let_go()


def _abandon(path: Path, handle: int, close: Callable[[], None], process: int) -> None:
    if os.getpid() != process:  # A fork, which has not written it.
        return
    close()
    _remove(path)
    os.close(handle)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _lock(handle: int, *, is_shared: bool = False, waits: bool = False) -> bool:
    """Lock an open file or folder, for its readers or a writer; return whether that was possible."""
    try:
        import fcntl  # Not on every system.
    except ImportError:
        return False
    kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    try:
        fcntl.flock(handle, kind if waits else kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
