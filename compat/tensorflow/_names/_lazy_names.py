"""Namespaces whose names load when first touched, and which name the nearest thing when asked for a missing one."""

import difflib
import dis
import importlib
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, final

from tfdist_jax._user_code import is_named_library
from tfdist_jax.compat.tensorflow._names._deferred import make_deferred
from tfdist_jax.compat.tensorflow._names._missing import reason
from tfdist_jax.compat.tensorflow._names._symbolic import has_effects, noting, takes_symbols, taking_symbols

_ROOT = __name__.rpartition("._names.")[0]
# Namespaces that repeat others' names: no help to who asks for a name elsewhere.
_ASIDE = ("tf.compat.", "tf.experimental.numpy.")


@final
class LazyNames:
    """A module's `__getattr__`: imports what a name stands for, the first time it is asked for.

    Attributes:
        namespace: The module's name.
        attributes: Name to the module, relative to this package, and the name there.
        modules: Names of submodules.

    Example:
        In a namespace's module::

            __getattr__ = LazyNames(__name__, {"linalg._matrices": "det inv eye=identity_matrix"}, modules="experimental")
            __dir__ = __getattr__.names
    """

    def __init__(self, namespace: str, sources: Mapping[str, str], *, modules: str = "") -> None:
        """Describe the names of `namespace`.

        Args:
            namespace: The module's `__name__`.
            sources: Module, relative to this package, to the names that it provides, separated by blanks;
                `new=old` where it calls them otherwise.
            modules: Names of submodules, separated by blanks.
        """
        self.namespace = namespace
        self.attributes = dict(_attributes(sources))
        self.modules = frozenset(modules.split())

    def __call__(self, name: str) -> Any:
        """Return what `name` stands for, and keep it in the module."""
        if name in self.attributes:
            module, attribute = self.attributes[name]
            value = getattr(importlib.import_module(f"{_ROOT}.{module}"), attribute)
            if takes_symbols(module, attribute, value):
                value = taking_symbols(value, self.namespace, name)
            elif has_effects(module, value):
                value = noting(value)
        elif name in self.modules:
            value = importlib.import_module(f"{self.namespace}.{name}")
        else:
            return _deferred_or_missing(self.namespace, name, sys._getframe(1))
        setattr(sys.modules[self.namespace], name, value)
        return value

    def names(self) -> list[str]:
        """List the names of the namespace, without loading them."""
        loaded = (name for name in vars(sys.modules[self.namespace]) if name.startswith("__"))
        return sorted({*self.attributes, *self.modules, *loaded})

    def dotted_names(self) -> Iterator[str]:
        """List the public names of the namespace and of the lazy ones below it, such as `tf.math.add`."""
        yield from (f"{_shown(self.namespace)}.{name}" for name in self.attributes)
        for name in self.modules:
            yield f"{_shown(self.namespace)}.{name}"
            below = _lazy_names(f"{self.namespace}.{name}")
            if below is not None:
                yield from below.dotted_names()


class MissingNameError(AttributeError, NotImplementedError):
    """A TensorFlow name that is not there was asked for: `hasattr` gives False."""


class MissingImportError(ImportError, NotImplementedError):
    """A TensorFlow name that is not there was imported."""


def _attributes(sources: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    for module, names in sources.items():
        for name in names.split():
            new, _, old = name.partition("=")
            yield new, (module, old or new)


def _lazy_names(module_name: str) -> LazyNames | None:
    """Return a submodule's names if they cost nothing; a large library (Keras) is not loaded for a message."""
    if module_name.endswith(".keras") and module_name not in sys.modules:
        return None
    found = getattr(importlib.import_module(module_name), "__getattr__", None)
    return found if isinstance(found, LazyNames) else None


def _shown(module_name: str) -> str:
    return "tf" + module_name.removeprefix(_ROOT)


def _deferred_or_missing(namespace: str, name: str, caller: FrameType) -> Any:
    """Return a stand-in for a name that TensorFlow has to a library that the user has named; raise the error to others.

    A library's modules mention at their import what only some of its functions use, in annotations and as defaults.
    """
    wanted = f"{_shown(namespace)}.{name}"
    if is_named_library(caller) and not name.startswith("__") and reason(wanted):
        return make_deferred(wanted, _message(wanted))
    raise _missing(namespace, name, caller)


def _missing(namespace: str, name: str, caller: FrameType) -> Exception:
    """Return the error for a name that is not there; `from tf import name` needs an ImportError to show its text."""
    wanted = f"{_shown(namespace)}.{name}"
    if name.startswith("__"):
        return AttributeError(f"module {namespace!r} has no attribute {name!r}")
    importing = dis.opname[caller.f_code.co_code[caller.f_lasti]] == "IMPORT_FROM"
    return (MissingImportError if importing else MissingNameError)(_message(wanted), name=name)


def _message(wanted: str) -> str:
    why = reason(wanted)
    if why:
        return f"`{wanted}` is not there (yet): {why}"
    message = f"`{wanted}` is not there (yet): tfdist_jax does not provide this TensorFlow name."
    near = nearest_names(wanted)
    return message + (f" The nearest that is: {', '.join(f'`{other}`' for other in near)}." if near else "")


def nearest_names(wanted: str, *, count: int = 2) -> list[str]:
    """Return the available dotted names that are most like `wanted`: with the same last part, or else by spelling."""
    root = _lazy_names(_ROOT)
    if root is None:
        return []
    aside = wanted.startswith(_ASIDE)
    available = sorted(name for name in root.dotted_names() if aside or not name.startswith(_ASIDE))
    last = wanted.rpartition(".")[2]
    same = [name for name in available if name.rpartition(".")[2].lower() == last.lower()]
    return same[:count] or difflib.get_close_matches(wanted, available, n=count, cutoff=0.75)
