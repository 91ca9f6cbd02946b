"""Modules that hold nothing of their own: their names are those of other namespaces, found when they are asked for."""

import dis
import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, ModuleType
from typing import Any, final

from tfdist_jax.compat.tensorflow._names._lazy_names import MissingImportError, MissingNameError

_PACKAGE = __name__.rpartition("._former.")[0]


@final
class View(ModuleType):
    """A module whose names, and submodules, a table gives.

    An entry of the table is the dotted name of a module below the root, and where its names are: namespaces, `tf.math`, which
    are searched in order, and single names, `new=tf.old`. Names that an entry must not find, since the private function takes
    other arguments than the public one with its name, are put behind a minus: `-dropout`.
    """

    def __init__(self, name: str, below: str, table: Mapping[str, str], message: Callable[[str], str]) -> None:
        """Make a module.

        Args:
            name: Its full name.
            below: Its name in the table.
            table: Sources of the names by module.
            message: Gives the text of the error for a name that is not there.
        """
        super().__init__(name, f"Names of earlier TensorFlow 2: `{name}`.")
        self.__path__ = []  # A package, for `import a.b.c`.
        self._below, self._table, self._message = below, table, message
        sources = table.get(below, "").split()
        self._single = dict(source.split("=") for source in sources if "=" in source)
        self._without = {source[1:] for source in sources if source.startswith("-")}
        self._namespaces = [source for source in sources if "=" not in source and not source.startswith("-")]

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return self._public_names()
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        try:
            value = self._find(name)
        except LookupError:
            raise self._missing(name, sys._getframe(1)) from None
        setattr(self, name, value)
        return value

    def _find(self, name: str) -> Any:
        if name in self._single:
            return find_public(self._single[name])
        below = f"{self._below}.{name}".lstrip(".")
        if has_module(self._table, f"{below}.", is_prefix=True):
            return self._module_below(name, below)
        for namespace in () if name in self._without else self._namespaces:
            try:
                return getattr(find_public(namespace), name)
            except AttributeError:
                continue
        if has_module(self._table, below):
            return self._module_below(name, below)
        raise LookupError(name)

    def _module_below(self, name: str, below: str) -> "View":
        return View(f"{self.__name__}.{name}", below, self._table, self._message)

    def _missing(self, name: str, caller: FrameType) -> Exception:
        importing = dis.opname[caller.f_code.co_code[caller.f_lasti]] == "IMPORT_FROM"
        return (MissingImportError if importing else MissingNameError)(
            self._message(f"{self.__name__}.{name}"), name=name
        )

    def _public_names(self) -> list[str]:
        found = {name for namespace in self._namespaces for name in dir(find_public(namespace)) if name[0] != "_"}
        return sorted(found - self._without | set(self._single))

    def __dir__(self) -> Iterator[str]:
        return iter(self._public_names())


@functools.cache
def _modules(names: frozenset[str]) -> frozenset[str]:
    parts = (name.split(".") for name in names)
    return frozenset(".".join(path[:i]) for path in parts for i in range(1, len(path) + 1))


def has_module(table: Mapping[str, str], name: str, *, is_prefix: bool = False) -> bool:
    """Whether a table has a module, or one below it; or any whose name begins so."""
    if is_prefix:
        return any(one.startswith(name) for one in table)
    return name in _modules(frozenset(table))


def find_public(dotted: str) -> Any:
    """Return what a dotted name stands for: `tf.add`, or `_former.device_lib` of this package.

    Raises:
        AttributeError: If there is nothing.
    """
    first, *parts = dotted.split(".")
    if first == "_former":
        found: Any = importlib.import_module(f"{_PACKAGE}._former.{parts.pop(0)}")
    else:
        found = sys.modules[_PACKAGE]
    for part in parts:
        found = getattr(found, part)
    return found
