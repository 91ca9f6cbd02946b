"""Lets a program's `import tensorflow` find this facade.

Only the program's own modules see it: what runs as `__main__`, and modules outside of the standard library and of
folders for installed packages; and libraries that TFDIST_ALIAS_FOR names. Others that look for TensorFlow (Keras, TensorFlow
Datasets, Orbax, ...) go on finding the real one, or none: they use parts that a training API does not have, and each has a way
without TensorFlow, which `tests/compat/test_alias.py` proves one by one. So the name is given out by caller, and
`sys.modules` never holds the facade as `tensorflow`.

If the real TensorFlow is installed, the program cannot reach it under this name. A library that imports it still
gets it, and pays for loading it only then.

The facade is loaded when a program asks for TensorFlow or Keras, whose backend it sets. Until then JAX's arrays are as JAX
has made them, for programs that are written for JAX.
"""

import builtins
import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any, final

from tfdist_jax._user_code import is_user_code, see_as_program
from tfdist_jax.compat import _importers

# A program's tracebacks go through here at each import; the frames say nothing about it.
__tracebackhide__ = True

# Libraries, separated by commas, that get the facade when they import TensorFlow.
ALIAS_FOR = "TFDIST_ALIAS_FOR"

_ALIASED = "tensorflow"
_DATASETS = "tensorflow_datasets"
_KERAS = "keras"
_FACADE = f"{__package__}.{_ALIASED}"


# Modules between an import statement and a finder.
_IMPORTING = (
    "importlib",
    "importlib._bootstrap",
    "importlib._bootstrap_external",
    "tfdist_jax.compat._alias",
    "tfdist_jax.compat._importers",
)


@functools.cache
def install() -> None:
    """Give the facade to every later `import tensorflow` of the program's own modules, and of the libraries in TFDIST_ALIAS_FOR.

    Raises:
        ModuleNotFoundError: If one of these libraries is not installed.
    """
    for name in filter(None, map(str.strip, os.environ.get(ALIAS_FOR, "").split(","))):
        see_as_program(name)
    _importers.install()
    sys.meta_path.append(_FormerKerasFinder())
    builtins.__import__ = _aliasing_import(builtins.__import__)
    importlib.import_module = _aliasing_import_module(importlib.import_module)
    importlib.util.find_spec = _aliasing_find_spec(importlib.util.find_spec)


def _is_aliased(name: str) -> bool:
    return name == _ALIASED or name.startswith(f"{_ALIASED}.")


def _is_program(frame: FrameType) -> bool:
    """Tell the program's modules from libraries, and from code that libraries make out of strings."""
    if frame.f_globals.get("__name__") in ("__main__", "__mp_main__"):
        return True  # Wherever it lies, and in the processes that it spawns.
    if (frame.f_code.co_filename, frame.f_code.co_name) == ("<string>", "<module>") and frame.f_back is not None:
        return _is_program(frame.f_back)  # Whoever has called `exec` or `eval`.
    return frame.f_code.co_filename != "<string>" and is_user_code(frame)


def _aliasing_import(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __import__(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        if level or not _is_aliased(name) or not _is_program(sys._getframe(1)):
            if not level:
                _prepare_keras(name)
            return _hooked(name, original(name, globals, locals, fromlist, level))
        module = resolve(name)
        _importers.mark_importer()
        return module if fromlist else resolve(_ALIASED)

    return __import__


def _aliasing_import_module(original: Callable[..., ModuleType]) -> Callable[..., Any]:
    @functools.wraps(original)
    def import_module(name: str, package: str | None = None) -> Any:
        if _is_aliased(name) and _is_program(sys._getframe(1)):
            module = resolve(name)
            _importers.mark_importer()
            return module
        _prepare_keras(name)
        return _hooked(name, original(name, package))

    return import_module


def _aliasing_find_spec(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def find_spec(name: str, package: str | None = None) -> Any:
        if not _is_aliased(name) or not _is_program(sys._getframe(1)):
            return original(name, package)
        try:
            module = resolve(name)
        except ModuleNotFoundError:
            if name.count(".") > 1:
                resolve(name.rpartition(".")[0])  # An error, as Python has it, if the folder is not there.
            return None
        is_module = isinstance(module, ModuleType)
        return ModuleSpec(name, None, origin=getattr(module, "__file__", None)) if is_module else None

    return find_spec


def _prepare_keras(name: str) -> None:
    """Load the facade, whose hooks Keras is imported with."""
    if name.partition(".")[0] == _KERAS and _KERAS not in sys.modules:
        _facade()


def _facade() -> Any:
    return sys.modules.get(_FACADE) or importlib.__import__(_FACADE, fromlist=("",))


def _hooked(name: str, module: Any) -> Any:
    """Return a library's module; the one that hands out TensorFlow's datasets gives ours from here on."""
    if name.partition(".")[0] == _DATASETS:
        datasets = sys.modules[_DATASETS]
        if hasattr(datasets, "as_numpy"):  # Not while it is being imported.
            from tfdist_jax.compat.tensorflow.data import _tfds

            _tfds.install(datasets)
    return module


def resolve(name: str) -> Any:
    """Return the facade's module or namespace for a dotted `tensorflow` name.

    Raises:
        ModuleNotFoundError: If the facade has none; the message names the nearest.
    """
    found = _facade()
    parts = name.split(".")[1:]
    if parts[:1] == ["python"]:
        found.python = _private_code().python()  # As an import does, for `tensorflow.python.x` in the program.
    for i, part in enumerate(parts):
        path = ".".join([_ALIASED, *parts[: i + 1]])
        try:
            found = getattr(found, part)
        except AttributeError as error:
            if parts[0] == "python":
                raise _private_code().missing_module(name) from None
            older = _keras_2().keras_module(".".join(parts[1 : i + 1])) if parts[0] == _KERAS else None
            if older is not None:
                setattr(found, part, older)  # As an import does, for `import a.b as b`.
                found = older
                continue
            raise ModuleNotFoundError(f"No module named {path!r}. {error}", name=path) from None
    return found


def _keras_2() -> Any:
    return importlib.__import__(f"{_FACADE}._former._keras_modules", fromlist=("",))


def _private_code() -> Any:
    return importlib.__import__(f"{_FACADE}._former._python", fromlist=("",))


@final
class _FormerKerasFinder:
    """Finds modules of Keras 2 that Keras 3 does not have, for the user's own modules: libraries ask which Keras there is."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        """Return the description of a module such as `keras.utils.np_utils`."""
        if not name.startswith("keras.") or not _is_asked_by_program(sys._getframe(1)):
            return None
        return _keras_2().find_keras_module(name)


def _is_asked_by_program(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_globals.get("__name__") in _IMPORTING:
        frame = frame.f_back
    return frame is not None and is_user_code(frame)
