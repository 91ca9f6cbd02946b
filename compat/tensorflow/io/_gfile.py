"""`tf.io.gfile`: files by path, local or in a cloud bucket.

Paths go through etils.epath, which reaches gs:// and s3:// where the libraries for them are installed.
See https://www.tensorflow.org/api_docs/python/tf/io/gfile.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, final

from etils import epath

from tfdist_jax.compat.tensorflow._platform._errors import AlreadyExistsError, FailedPreconditionError, NotFoundError


class FileStatistics(NamedTuple):
    """What `stat` tells.

    Attributes:
        length: Bytes.
        mtime_nsec: Time of the last change, in nanoseconds since 1970.
        is_directory: Whether it is a folder.
    """

    length: int
    mtime_nsec: int
    is_directory: bool


def _path(path: Any) -> epath.Path:
    return epath.Path(path.decode() if isinstance(path, bytes) else path)


def _missing(path: Any) -> NotFoundError:
    return NotFoundError(None, None, f"{os.fspath(path)}; No such file or directory")


def _existing(path: Any) -> epath.Path:
    found = _path(path)
    if not found.exists():
        raise _missing(path)
    return found


def _remove_for(target: epath.Path, *, overwrite: bool) -> None:
    if target.exists() and not overwrite:
        raise AlreadyExistsError(None, None, f"file already exists: {target}. Pass overwrite=True to replace it.")


def exists(path: Any) -> bool:
    """Whether there is a file or folder."""
    return _path(path).exists()


def isdir(path: Any) -> bool:
    """Whether there is a folder."""
    return _path(path).is_dir()


def listdir(path: Any) -> list[str]:
    """Return the names in a folder; a NotFoundError if there is none."""
    return [entry.name for entry in _existing(path).iterdir()]


def glob(pattern: Any) -> list[str]:
    """Return the paths that match a pattern, or any of several, sorted."""
    patterns = [pattern] if isinstance(pattern, str | bytes | os.PathLike) else list(pattern)
    return sorted(str(match) for one in patterns for match in _matches(_path(one)))


def _matches(pattern: epath.Path) -> Iterator[Any]:
    fixed = list(pattern.parts)
    wild = next((i for i, part in enumerate(fixed) if any(mark in part for mark in "*?[")), None)
    if wild is None:
        return iter([pattern] if pattern.exists() else [])
    root = epath.Path(*fixed[:wild]) if wild else epath.Path()
    return root.glob("/".join(fixed[wild:]))


def mkdir(path: Any) -> None:
    """Make a folder in one that exists."""
    target = _path(path)
    if target.exists():
        raise AlreadyExistsError(None, None, f"{target}; File exists")
    if not target.parent.exists():
        raise _missing(path)
    target.mkdir()


def makedirs(path: Any) -> None:
    """Make a folder and those above it; nothing happens if it is there."""
    target = _path(path)
    if target.exists() and not target.is_dir():
        raise FailedPreconditionError(None, None, f"{target} is not a directory")
    target.mkdir(parents=True, exist_ok=True)


def remove(path: Any) -> None:
    """Delete a file."""
    target = _existing(path)
    if target.is_dir():
        raise FailedPreconditionError(None, None, f"{target}; Is a directory. Use tf.io.gfile.rmtree.")
    target.unlink()


def rmtree(path: Any) -> None:
    """Delete a folder and all in it; a NotFoundError if it is not there."""
    _existing(path).rmtree()


def copy(src: Any, dst: Any, overwrite: bool = False) -> None:
    """Copy a file."""
    source, target = _existing(src), _path(dst)
    _remove_for(target, overwrite=overwrite)
    source.copy(target, overwrite=overwrite)


def rename(src: Any, dst: Any, overwrite: bool = False) -> None:
    """Move a file or folder."""
    source, target = _existing(src), _path(dst)
    _remove_for(target, overwrite=overwrite)
    source.replace(target)


def stat(path: Any) -> FileStatistics:
    """Return length and time of change."""
    found = _existing(path).stat()
    return FileStatistics(found.length, int(found.mtime * 1e9), found.is_directory)


def walk(
    top: Any, topdown: bool = True, onerror: Callable[[Any], None] | None = None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield (folder, its folders, its files) for a folder and all below it."""
    folder = _path(top)
    if not folder.exists():
        if onerror is not None:
            onerror(_missing(top))
        return
    entries = sorted(folder.iterdir())
    folders = [entry.name for entry in entries if entry.is_dir()]
    here = (str(folder), folders, [entry.name for entry in entries if entry.name not in folders])
    if topdown:
        yield here
    for name in folders:
        yield from walk(folder / name, topdown, onerror)
    if not topdown:
        yield here


def join(path: Any, *paths: Any) -> str:
    """Return the parts of a path joined."""
    return os.path.join(path, *paths)


def get_registered_schemes() -> list[str]:
    """Return the kinds of addresses that paths may begin with; "" stands for local paths."""
    return ["", "gs", "s3"]


@final
class GFile:
    """A file, opened when it is first used.

    See https://www.tensorflow.org/api_docs/python/tf/io/gfile/GFile.
    """

    def __init__(self, name: Any, mode: str = "r") -> None:
        """Name a file and how to open it: as for Python's `open`."""
        self._name = name
        self._mode = mode
        self._file: Any = None

    @property
    def name(self) -> str:
        """The path."""
        return self._name

    @property
    def mode(self) -> str:
        """How it is opened."""
        return self._mode

    def _open(self) -> Any:
        if self._file is None:
            try:
                self._file = _path(self._name).open(self._mode)
            except FileNotFoundError:
                raise _missing(self._name) from None
        return self._file

    def read(self, n: int = -1) -> Any:
        """Return the next `n` characters or bytes, all that is left by default."""
        return self._open().read(n)

    def readline(self) -> Any:
        """Return the next line."""
        return self._open().readline()

    def readlines(self) -> list[Any]:
        """Return all lines that are left."""
        return self._open().readlines()

    def write(self, file_content: Any) -> None:
        """Write text or bytes."""
        self._open().write(file_content)

    def seek(self, offset: int | None = None, whence: int = 0, position: int | None = None) -> None:
        """Go to a place in the file."""
        self._open().seek(position if offset is None else offset, whence)

    def tell(self) -> int:
        """Return the place in the file."""
        return self._open().tell()

    def size(self) -> int:
        """Return the length in bytes."""
        return stat(self._name).length

    def seekable(self) -> bool:
        """Whether `seek` works."""
        return self._open().seekable()

    def flush(self) -> None:
        """Write out what is held back."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> "GFile":
        """Return the file."""
        return self

    def __exit__(self, *exception: Any) -> None:
        """Close the file."""
        self.close()

    def __iter__(self) -> Iterator[Any]:
        """Go through the lines."""
        return iter(self._open())

    def __next__(self) -> Any:
        """Return the next line."""
        return next(self._open())
