"""Which modules import the facade: there operators follow TensorFlow's rules, elsewhere JAX's.

A module is marked in its own namespace when it imports the facade, by whatever name and wherever in its code. So asking costs
one look-up, and what runs in that namespace later, such as a notebook's next cell, counts as well.
"""

import builtins
import functools
import importlib
import itertools
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, ModuleType
from typing import Any

from tfdist_jax._user_code import is_user_code

# A program's tracebacks go through here at each import; the frames say nothing about it.
__tracebackhide__ = True

_FACADE = f"{__package__}.tensorflow"
_MARK = "__imports_tensorflow__"
# What lies between an import statement and the frames of what it loads: functions by name, and modules.
_IMPORTING = ("__import__", "import_module")
_BETWEEN = (__name__, _FACADE, "importlib._bootstrap", "importlib._bootstrap_external")


@functools.cache
def install() -> None:
    """Mark the user's modules that import the facade from now on, and the one whose import is loading it."""
    builtins.__import__ = _marking_import(builtins.__import__)
    importlib.import_module = _marking_import_module(importlib.import_module)
    mark_importer()


def mark_importer() -> None:
    """Mark the user's module whose import statement is running."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_between(frame):
        frame = frame.f_back
    if frame is not None and is_user_code(frame):
        mark_as_importer(frame.f_globals)


def imports_facade(namespace: dict[str, Any]) -> bool:
    """Whether a module with these globals imports the facade, or was handed it: by another module, or by `exec`."""
    if _MARK in namespace:
        return True
    facade = itertools.repeat(sys.modules[_FACADE])
    if not any(map(operator.is_, list(namespace.values()), facade)):
        return False
    mark_as_importer(namespace)
    return True


def mark_as_importer(namespace: dict[str, Any]) -> None:
    """Let globals be those of a module that imports the facade."""
    namespace[_MARK] = True


def _is_between(frame: FrameType) -> bool:
    return frame.f_code.co_name in _IMPORTING or frame.f_globals.get("__name__") in _BETWEEN


def _is_facade(name: str, fromlist: Sequence[str] | None) -> bool:
    if name == __package__:
        return "tensorflow" in (fromlist or ())
    return name == _FACADE or name.startswith(f"{_FACADE}.")


def _marking_import(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __import__(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        module = original(name, globals, locals, fromlist, level)
        if _is_facade(name, fromlist):
            mark_importer()
        return module

    return __import__


def _marking_import_module(original: Callable[..., ModuleType]) -> Callable[..., Any]:
    @functools.wraps(original)
    def import_module(name: str, package: str | None = None) -> Any:
        module = original(name, package)
        if _is_facade(name, None):
            mark_importer()
        return module

    return import_module
