"""Plans on their way to other processes, with the functions of the program's that they call, whose values go with them.

What shares something with the program stays: variables, tables and other things that change would be others there.
"""

import contextlib
import dataclasses
import dis
import importlib
import inspect
import io
import itertools
import linecache
import os
import pickle
import random
import sys
import threading
import traceback
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np

from tfdist_jax._user_code import is_user_file
from tfdist_jax.compat._importers import imports_facade, mark_as_importer
from tfdist_jax.compat.tensorflow._functions._closure_guard import contents
from tfdist_jax.compat.tensorflow.data._bindings import codes
from tfdist_jax.compat.tensorflow.data._file_cache import FileCache, FileCacheRows
from tfdist_jax.compat.tensorflow.data._plan import Plan
from tfdist_jax.compat.tensorflow.data._saved_plans import Snapshot
from tfdist_jax.compat.tensorflow.data._source_plans import FromGenerator
from tfdist_jax.compat.tensorflow.lookup._mutable_tables import MutableTable
from tfdist_jax.compat.tensorflow.random._random_state import global_seed

# For each kind of thing that stays, what a reader is told.
_STAYS: Mapping[type, str] = {
    io.IOBase: "it uses an open file",
    np.random.Generator: "it draws random numbers of NumPy's",
    np.random.RandomState: "it draws random numbers of NumPy's",
    random.Random: "it draws random numbers of Python's",
    FromGenerator: "a Python generator gives its elements",
    FileCache: "it keeps a cache in files",
    FileCacheRows: "it keeps a cache in files",
    Snapshot: "it keeps a snapshot in files",
    MutableTable: "it uses a table that changes",
    Iterator: "it uses an iterator, which goes on in one process only",
}
_NAMING = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF")
_FACADE = "tfdist_jax.compat."
_PYTHON = "it calls Python, by `tf.py_function` or its like"
_CALLS_PYTHON = {"py_function", "numpy_function", "py_func", "from_generator"}


@final
class NotPortableError(Exception):
    """A plan cannot leave its process, for the reason that the message says."""


@final
@dataclasses.dataclass(frozen=True)
class PortablePlan:
    """A plan on its way.

    Attributes:
        pickled: It, by pickle.
        arrays: The memory of its arrays.
        sources: The lines of the program's files that its functions are in, by the files' names: AutoGraph reads them.
        is_aliased: Whether a program's `import tensorflow` means the facade.
        seed: What the program has given to `tf.random.set_seed`.
        folder: The folder that the names of files start from.
    """

    pickled: bytes
    arrays: Sequence[np.ndarray]
    sources: Mapping[str, Sequence[str]]
    is_aliased: bool
    seed: int | None
    folder: str

    @classmethod
    def of(cls, plan: Plan) -> "PortablePlan":
        """Prepare a plan for other processes.

        Raises:
            NotPortableError: If it cannot leave this one.
        """
        from tfdist_jax.compat._alias import install  # The facade does not load what makes it stand for TensorFlow.

        text, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
        pickler = _make_pickler()(text, buffers)
        try:
            with _programs_modules_by_value():
                pickler.dump(plan)
        except Exception as error:  # Whatever the program's objects do when they are copied.
            reason = str(error) if isinstance(error, NotPortableError) else f"a part of it cannot be copied: {error}"
            modules = ", ".join(pickler.modules)
            hint = (
                f" (of what is in {modules}, perhaps: import the functions that it needs by their names)"
                if modules
                else ""
            )
            raise NotPortableError(reason + hint) from error
        arrays = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
        is_aliased = bool(install.cache_info().currsize)
        return cls(text.getvalue(), arrays, pickler.sources, is_aliased, global_seed(), os.getcwd())

    def load(self) -> Plan:
        """Return the plan, in another process."""
        from tfdist_jax.compat._alias import install  # As in `of`.

        if self.is_aliased:
            install()
        with contextlib.suppress(OSError):  # On this machine there may be no such folder.
            os.chdir(self.folder)
        for name, lines in self.sources.items():  # The file of this name here may be another one.
            linecache.cache[name] = sum(map(len, lines)), None, list(lines), name
        return pickle.loads(self.pickled, buffers=self.arrays)


_REGISTERING = threading.RLock()


@contextlib.contextmanager
def _programs_modules_by_value() -> Iterator[None]:
    """Let functions of the program's modules be pickled by value: imported elsewhere, these would not be as the program has set them."""
    cloudpickle: Any = importlib.import_module("cloudpickle")  # Of an extra.
    with _REGISTERING:
        known = cloudpickle.list_registry_pickle_by_value()
        own = [
            module for name, module in list(sys.modules.items()) if _is_of_program(name, module) and name not in known
        ]
        try:
            for module in own:
                cloudpickle.register_pickle_by_value(module)
            yield
        finally:
            for module in own:
                cloudpickle.unregister_pickle_by_value(module)


def _is_of_program(name: str, module: Any) -> bool:
    if not isinstance(module, types.ModuleType) or module.__name__ != name or name == "__main__":
        return False
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and is_user_file(file)


def _make_pickler() -> type[Any]:
    """Return the class of picklers, which is built on an extra's."""
    cloudpickle: Any = importlib.import_module("cloudpickle")

    class Pickler(cloudpickle.Pickler):
        def __init__(self, file: Any, buffers: list[pickle.PickleBuffer]) -> None:
            super().__init__(file, protocol=5, buffer_callback=buffers.append)
            self.sources: dict[str, Sequence[str]] = {}
            self.modules: list[str] = []

        def reducer_override(self, obj: Any) -> Any:
            _must_be_portable(obj)
            reduced = super().reducer_override(obj)
            if isinstance(obj, types.ModuleType) and _is_of_program(obj.__name__, obj):
                self.modules.append(obj.__name__)
            if isinstance(obj, types.FunctionType) and is_user_file(obj.__code__.co_filename):
                name = obj.__code__.co_filename
                self.sources.setdefault(name, linecache.getlines(name))
                if isinstance(reduced, tuple) and imports_facade(obj.__globals__):
                    # Of the module's names those that the function uses go with it; its operators would not be TensorFlow's any more.
                    mark_as_importer(reduced[2][1]["__globals__"])
            return reduced

    return Pickler


def pack_error(error: Exception) -> bytes:
    """Return an error, which may be of a class of the program's, for the process that the plan has come from."""
    error.add_note("In the process that was asked:\n" + "".join(traceback.format_exception(error)))
    return importlib.import_module("cloudpickle").dumps(error.with_traceback(None))


def load_error(packed: bytes) -> Exception:
    """Return what `pack_error` has packed."""
    return pickle.loads(packed)


def _must_be_portable(obj: Any) -> None:
    if isinstance(obj, type | types.ModuleType):
        return
    for kind, reason in _STAYS.items():
        if isinstance(obj, kind):
            raise NotPortableError(reason)
    if isinstance(obj, types.FunctionType):
        _must_be_portable_function(obj)
    elif _has(obj, "stored") and _has(obj, "storage"):
        raise NotPortableError("it uses a variable, or a generator of random numbers")
    elif any(kind.__module__.partition(".")[0] == "keras" for kind in type(obj).__mro__):
        raise NotPortableError(f"it uses an object of Keras's, {type(obj).__name__}")


def _must_be_portable_function(fn: types.FunctionType) -> None:
    if (fn.__module__ or "").startswith(_FACADE) and fn.__name__ in _CALLS_PYTHON:
        raise NotPortableError(_PYTHON)
    if is_user_file(fn.__code__.co_filename):
        if _CALLS_PYTHON.intersection(_names_in(fn.__code__)):
            raise NotPortableError(_PYTHON)
        if _draws_random_numbers(fn):
            raise NotPortableError("it draws random numbers of Python's or NumPy's")


def _draws_random_numbers(fn: types.FunctionType) -> bool:
    """Whether a function, or one that it makes, reads Python's `random` or NumPy's: another process has other numbers."""
    reached = {**fn.__globals__, **dict(zip(fn.__code__.co_freevars, map(contents, fn.__closure__ or ()), strict=True))}
    for code in codes(fn.__code__):
        named: Any = None
        for instruction in dis.get_instructions(code):
            is_attribute = instruction.opname in ("LOAD_ATTR", "LOAD_METHOD")
            if is_attribute and named is np and instruction.argval == "random":
                return True
            named = reached.get(instruction.argval) if instruction.opname in _NAMING else None
            if named is random or named is np.random:
                return True
    return False


def _has(obj: Any, name: str) -> bool:
    return inspect.getattr_static(obj, name, None) is not None


def _names_in(code: types.CodeType) -> Iterator[str]:
    return itertools.chain.from_iterable(each.co_names for each in codes(code))
