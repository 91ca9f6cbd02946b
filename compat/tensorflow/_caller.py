"""Tells a user's own code from libraries: both read a tensor's `shape`, and expect different things."""

import functools
import os
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

_INSTALLED = ("site-packages", "dist-packages")
# Libraries that look into arrays, wherever they are installed.
_LIBRARIES = ("jax", "jaxlib", "keras", "numpy", "flax", "optax", "tfdist_jax", "tfdist_jax.compat")


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


@functools.cache
def _is_user_file(filename: str) -> bool:
    if filename.startswith("<frozen") or any(part in filename for part in _INSTALLED):
        return False
    return not filename.startswith(_library_folders())


def is_user_code(frame: FrameType) -> bool:
    """Whether the frame runs code that belongs to no library: a script, its modules, or typed at a prompt."""
    return _is_user_file(frame.f_code.co_filename)
