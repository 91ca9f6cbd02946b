"""Plans on their way to other processes, with the functions of the program's that they call, whose values go with them.

What shares something with the program stays: variables, tables and other things that change would be others there.
"""

import contextlib
import dataclasses
import importlib
import inspect
import io
import linecache
import pickle
import sys
import threading
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np

from tfdist_jax._user_code import is_user_file
from tfdist_jax.compat.tensorflow.data._file_cache import FileCache, FileCacheRows
from tfdist_jax.compat.tensorflow.data._plan import Plan
from tfdist_jax.compat.tensorflow.data._saved_plans import Snapshot
from tfdist_jax.compat.tensorflow.data._source_plans import FromGenerator
from tfdist_jax.compat.tensorflow.lookup._mutable_tables import MutableTable

# For each kind of thing that stays, what a reader is told.
_STAYS = {
    FromGenerator: "a Python generator gives its elements",
    FileCache: "it keeps a cache in files",
    FileCacheRows: "it keeps a cache in files",
    Snapshot: "it keeps a snapshot in files",
    MutableTable: "it uses a table that changes",
    Iterator: "it uses an iterator, which goes on in one process only",
}
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
    """

    pickled: bytes
    arrays: Sequence[np.ndarray]
    sources: Mapping[str, Sequence[str]]
    is_aliased: bool

    @classmethod
    def of(cls, plan: Plan) -> "PortablePlan":
        """Prepare a plan for other processes.

        Raises:
            NotPortableError: If it cannot leave this one.
        """
        from tfdist_jax.compat._alias import install  # The facade does not load what makes it stand for TensorFlow.

        text, buffers, sources = io.BytesIO(), list[pickle.PickleBuffer](), dict[str, Sequence[str]]()
        try:
            with _programs_modules_by_value():
                _make_pickler()(text, buffers, sources).dump(plan)
        except NotPortableError:
            raise
        except Exception as error:  # Whatever the program's objects do when they are copied.
            raise NotPortableError(f"a part of it cannot be copied: {error}") from error
        arrays = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
        return cls(text.getvalue(), arrays, sources, bool(install.cache_info().currsize))

    def load(self) -> Plan:
        """Return the plan, in another process."""
        from tfdist_jax.compat._alias import install  # As in `of`.

        if self.is_aliased:
            install()
        for name, lines in self.sources.items():
            if not linecache.getlines(name):
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
        def __init__(self, file: Any, buffers: list[pickle.PickleBuffer], sources: dict[str, Sequence[str]]) -> None:
            super().__init__(file, protocol=5, buffer_callback=buffers.append)
            self._sources = sources

        def reducer_override(self, obj: Any) -> Any:
            _must_be_portable(obj)
            if isinstance(obj, types.FunctionType):
                name = obj.__code__.co_filename
                if is_user_file(name) and name not in self._sources:
                    self._sources[name] = linecache.getlines(name)
            return super().reducer_override(obj)

    return Pickler


def _must_be_portable(obj: Any) -> None:
    if isinstance(obj, type | types.ModuleType):
        return
    for kind, reason in _STAYS.items():
        if isinstance(obj, kind):
            raise NotPortableError(reason)
    if isinstance(obj, types.FunctionType):
        if is_user_file(obj.__code__.co_filename) and _CALLS_PYTHON.intersection(_names_in(obj.__code__)):
            raise NotPortableError("it calls Python, by `tf.py_function` or its like")
    elif _has(obj, "stored") and _has(obj, "storage"):
        raise NotPortableError("it uses a variable, or a generator of random numbers")
    elif any(kind.__module__.partition(".")[0] == "keras" for kind in type(obj).__mro__):
        raise NotPortableError(f"it uses an object of Keras's, {type(obj).__name__}")


def _has(obj: Any, name: str) -> bool:
    return inspect.getattr_static(obj, name, None) is not None


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)
