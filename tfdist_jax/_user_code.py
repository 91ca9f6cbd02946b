"""Tells a user's own code from libraries: for messages, and because both expect different things of a tensor's `shape`."""

import functools
import linecache
import os
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

_INSTALLED = ("site-packages", "dist-packages")
# Libraries that look into arrays, wherever they are installed.
_LIBRARIES = ["jax", "jaxlib", "numpy", "flax", "optax", "tfdist_jax", "tfdist_jax.compat"]
_SHOWN = 60


@functools.cache
def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = [paths["stdlib"], paths["platstdlib"]]
    for name in _LIBRARIES:
        spec = find_spec(name)
        if spec is not None and spec.origin is not None:
            folder = Path(spec.origin).parent
            folders += [str(folder), str(folder.resolve())]
    return tuple(folder + os.sep for folder in folders)


# How names of files begin that belong to libraries, but are written for TensorFlow's tensors.
_written_for_tensorflow: list[str] = []
# Those of them that the user has named.
_named: list[str] = []
# Files that call what the user's code says.
_calling_for_user: set[str] = set()


def see_as_library(name: str) -> None:
    """Let a package count as a library, also where it is no installed one."""
    _LIBRARIES.append(name)
    _library_folders.cache_clear()
    is_user_file.cache_clear()


def see_as_user_file(filename: str) -> None:
    """Let a library's source file see tensors as a program's do."""
    _written_for_tensorflow.append(filename)
    is_user_file.cache_clear()


def see_as_program(package: str) -> None:
    """Let an installed package count as a part of the user's program.

    Raises:
        ModuleNotFoundError: If there is no such package.
    """
    spec = find_spec(package)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    folders = spec.submodule_search_locations
    files = [str(spec.origin)] if folders is None else [folder + os.sep for folder in folders]
    _written_for_tensorflow.extend(files)
    _named.extend(files)
    is_user_file.cache_clear()


def has_named_libraries() -> bool:
    """Whether the user has named installed packages that count as a part of the program."""
    return bool(_named)


def is_named_library(frame: FrameType) -> bool:
    """Whether the frame runs code of such a package."""
    return frame.f_code.co_filename.startswith(tuple(_named))


@functools.cache
def is_user_file(filename: str) -> bool:
    """Whether a source file belongs to no library."""
    if filename.startswith(tuple(_written_for_tensorflow)):
        return True
    if filename.startswith("<frozen") or any(part in filename for part in _INSTALLED):
        return False
    return not filename.startswith(_library_folders())


def is_user_code(frame: FrameType) -> bool:
    """Whether the frame runs code that belongs to no library: a script, its modules, or typed at a prompt."""
    return is_user_file(frame.f_code.co_filename)


@functools.cache
def _is_pythons(filename: str) -> bool:
    """Whether a source file is of Python's own library, such as `collections` or `logging`."""
    folder = sysconfig.get_paths()["stdlib"] + os.sep
    return filename.startswith(folder) and not any(part in filename for part in _INSTALLED)


def call_for_user(filename: str) -> None:
    """Let a source file, which calls what the user's code says, count as that where a text is asked for."""
    _calling_for_user.add(filename)


def is_text_for_user(frame: FrameType | None) -> bool:
    """Whether code that asks for a text is the user's, or Python's own library, such as `print` of a named tuple, on its behalf."""
    while frame is not None and (
        _is_pythons(frame.f_code.co_filename) or frame.f_code.co_filename in _calling_for_user
    ):
        frame = frame.f_back
    return frame is not None and is_user_code(frame)


def user_line(frame: FrameType | None) -> str:
    """Return the user's innermost line among a frame and its callers, as "train.py:57 (`model.fit(x)`)"; empty if none."""
    while frame is not None and not _has_line(frame):
        frame = frame.f_back
    if frame is None:
        return ""
    # A running frame of another thread may be between lines.
    return describe_line(frame.f_code.co_filename, frame.f_lineno or 0)


def describe_line(filename: str, line: int) -> str:
    """Return a line of a source file as "train.py:57 (`model.fit(x)`)"."""
    text = linecache.getline(filename, line).strip()
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return f"{filename}:{line} (`{text}`)" if text else f"{filename}:{line}"


def _has_line(frame: FrameType) -> bool:
    return is_user_code(frame) and frame.f_code.co_filename != "<string>"
