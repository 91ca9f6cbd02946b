"""What a traced function has frozen: the Python values its code can reach, as a cache key."""

import dataclasses
import dis
import functools
import types
from collections.abc import Hashable, Iterator
from contextvars import ContextVar
from typing import Any, final

from tfdist_jax._thread_state import having


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


def closure_guard(fn: Any, *, ignored: tuple[type, ...] = ()) -> Hashable:
    """Return a key that changes when code, closures, named globals or plain attributes of `fn` change.

    Args:
        fn: A function, or something that it uses.
        ignored: Types of objects that make no difference.

    Returns:
        The key.

    Two fresh lambdas with the same code and the same surroundings get the same key, so a step written inline in
    a loop is not traced again; a closure over another number gets another key. Tensors and variables reached
    count by identity: their values are inputs.
    """
    with having(_ignored, ignored):
        return _guard(fn, 0)


_ignored: ContextVar[tuple[type, ...]] = ContextVar("ignored", default=())


def _guard(value: Any, depth: int, attributes: frozenset[str] = frozenset()) -> Hashable:
    """Return a key for a value; for an object with those of its `attributes` that are plain."""
    if isinstance(value, _SCALARS):
        return (type(value), value)
    if isinstance(value, _ignored.get()):
        return None
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
    call: Any = type(value).__call__ if depth == 0 and callable(value) else None
    if isinstance(call, types.FunctionType):
        return ("method", _function(call, depth), _attributes(value))
    return _attributes(value, attributes) if attributes else ById(value)


def _function(fn: types.FunctionType, depth: int) -> Hashable:
    uses, names = _uses(fn.__code__), fn.__globals__
    reached = {name: contents(cell) for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)}
    reached |= {name: names[name] for name in uses.names if name in names}
    guards = [
        # What a function does nothing with but append to it makes no difference to it, whatever it holds.
        ById(value) if isinstance(value, list) and name in uses.grown else _guard(value, depth + 1, uses.attributes)
        for name, value in reached.items()
        if not isinstance(value, (types.ModuleType, type))
    ]
    return (fn.__code__, _guard(fn.__defaults__, depth + 1), *guards)


@final
@dataclasses.dataclass(frozen=True)
class _Uses:
    """What a function, with those that it makes, uses by name.

    Attributes:
        names: Global names.
        attributes: Names of attributes, of whatever objects.
        grown: Names of which it uses the methods `append` and `extend` only.
    """

    names: tuple[str, ...]
    attributes: frozenset[str]
    grown: frozenset[str]


@functools.cache
def _uses(code: types.CodeType) -> _Uses:
    names: dict[str, None] = {}
    attributes, grown, other = set(), set(), set()
    for part in _codes(code):
        steps = [step for step in dis.get_instructions(part) if step.opname not in _NO_USE]
        for step, following in zip(steps, [*steps[1:], None], strict=True):
            if step.opname in _ATTRIBUTES:
                attributes.add(step.argval)
            if step.opname in _GLOBALS:
                names[step.argval] = None
            if step.opname in (*_GLOBALS, "LOAD_DEREF"):
                appends = following is not None and following.argval in ("append", "extend")
                (grown if appends else other).add(step.argval)
    return _Uses(tuple(names), frozenset(attributes), frozenset(grown - other))


_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_NO_USE = ("PUSH_NULL", "CACHE", "EXTENDED_ARG")


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a function's code and that of the functions that it makes."""
    yield code
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _codes(part)


def contents(cell: types.CellType) -> Any:
    """Return what a closure's cell holds; None if it is empty."""
    try:
        return cell.cell_contents
    except ValueError:  # Not filled yet, as for a function that refers to itself.
        return None


def _attributes(owner: Any, used: frozenset[str] | None = None) -> Hashable:
    """Identify an object with its plain attributes, all or those `used`, which code may use as constants."""
    held = getattr(owner, "__dict__", {})
    names = held if used is None else used & held.keys()
    plain = [(name, type(held[name]), held[name]) for name in names if isinstance(held[name], _SCALARS)]
    return (ById(owner), frozenset(plain))
