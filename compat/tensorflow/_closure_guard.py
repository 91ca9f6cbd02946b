"""What a traced function has frozen: the Python values its code can reach, as a cache key."""

import functools
import types
from collections.abc import Hashable
from typing import Any, final


@final
class ById:
    """A value that equals only itself; holding it keeps its identity from being given to another."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        """Stand for `value`."""
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ById) and self.value is other.value


_SCALARS = (int, float, str, bool, bytes, type(None), complex)
_DEEPEST = 4
_LARGEST = 32


def closure_guard(fn: Any) -> Hashable:
    """Return a key that changes when code, closures, named globals or plain attributes of `fn` change.

    Two fresh lambdas with the same code and the same surroundings get the same key, so a step written inline in
    a loop is not traced again; a closure over another number gets another key. Tensors and variables reached
    count by identity: their values are inputs.
    """
    return _guard(fn, 0)


def _guard(value: Any, depth: int) -> Hashable:
    if isinstance(value, _SCALARS):
        return (type(value), value)
    if depth > _DEEPEST:
        return ById(value)
    if isinstance(value, types.MethodType):
        return ("method", _guard(value.__func__, depth), _attributes(value.__self__))
    if isinstance(value, functools.partial):
        return ("partial", _guard(value.func, depth), _guard(value.args, depth + 1), _guard(value.keywords, depth + 1))
    if isinstance(value, types.FunctionType):
        return _function(value, depth)
    if isinstance(value, (tuple, list)) and len(value) <= _LARGEST:
        return (type(value), *(_guard(item, depth + 1) for item in value))
    if isinstance(value, dict) and len(value) <= _LARGEST:
        return (dict, *((_guard(key, depth + 1), _guard(item, depth + 1)) for key, item in value.items()))
    return ById(value)


def _function(fn: types.FunctionType, depth: int) -> Hashable:
    cells = [_guard(_cell_contents(cell), depth + 1) for cell in fn.__closure__ or ()]
    names = fn.__globals__
    used = [
        _guard(names[name], depth + 1)
        for name in fn.__code__.co_names
        if name in names and not isinstance(names[name], (types.ModuleType, type))
    ]
    return (fn.__code__, _guard(fn.__defaults__, depth + 1), *cells, *used)


def _cell_contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # Not filled yet, as for a function that refers to itself.
        return None


def _attributes(owner: Any) -> Hashable:
    """Identify an object with its plain attributes, which its methods may use as constants."""
    plain = {name: value for name, value in getattr(owner, "__dict__", {}).items() if isinstance(value, _SCALARS)}
    return (ById(owner), tuple((name, type(value), value) for name, value in plain.items()))
