"""Objects that hold variables, and who waits for new ones: restored checkpoints whose values have no variable yet."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, Protocol, final

import jax


class Waiting(Protocol):
    """Someone who wants to know of new variables."""

    def look_again(self, owner: Any) -> None:
        """Look at what `owner` holds now."""


# In the order of their coming: what was restored last counts. Mostly none at all.
_waiting: dict[int, Waiting] = {}
_changes_so_far = 0


def changes_so_far() -> int:
    """Return how often an object may have got other objects to hold."""
    return _changes_so_far


def wait_for_variables(restored: Waiting) -> None:
    """Call `restored.look_again(owner)` from now on whenever an object that holds variables has changed."""
    _waiting[id(restored)] = restored


def stop_waiting(restored: Waiting) -> None:
    """Call it no more."""
    _waiting.pop(id(restored), None)


def attributes_changed(owner: Any) -> None:
    """Tell those who wait that an object may hold new variables."""
    global _changes_so_far
    _changes_so_far += 1
    if _waiting:
        for restored in list(_waiting.values()):
            restored.look_again(owner)


@final
@dataclasses.dataclass(frozen=True)
class Library:
    """How the objects of another library, such as Keras, hold variables.

    Attributes:
        kinds: The classes of those that do, variables among them.
        parts: Yields the variables and objects that one holds, by attribute.
        assign: Gives one of its variables a value.
        unknown_to_tensorflow: The classes of those that TensorFlow's checkpoints do not look into.
        tensorflow_parts: Yields what TensorFlow's checkpoints find in an object, by the names that they have for it.
        known_parts: Yields it by the names of older versions of the library, too.
        wide_variables: Yields those of an object's variables that have 64 bits under TensorFlow, and fewer here.
        slot_variable: Returns what an optimizer keeps of a variable, by the name that older versions have for it; None if that
            is nothing, or not there yet.
    """

    kinds: tuple[type, ...]
    parts: Callable[[Any], Iterator[tuple[str, Any]]]
    assign: Callable[[Any, Any], None]
    unknown_to_tensorflow: tuple[type, ...]
    tensorflow_parts: Callable[[Any], Iterator[tuple[str, Any]]]
    known_parts: Callable[[Any], Iterator[tuple[str, Any]]]
    wide_variables: Callable[[Any], Iterator[Any]]
    slot_variable: Callable[[Any, Any, str], Any]


# Those that are loaded: they add themselves.
_libraries: list[Library] = []


def add_library(library: Library) -> None:
    """Let modules and checkpoints look into a library's objects from now on."""
    _libraries.append(library)


def library_of(value: Any) -> Library | None:
    """Return the library whose object with variables `value` is, or None."""
    return next((library for library in _libraries if isinstance(value, library.kinds)), None)


@final
class TrackedList(list):
    """A list that says when it changes, so that variables put into it get the values that wait for them."""


@final
class TrackedDict(dict):
    """A dictionary that does."""


def tracked(value: Any) -> Any:
    """Return lists and dictionaries, also those inside others, as ones that say when they change."""
    if type(value) is list:
        return TrackedList(map(tracked, value))
    if type(value) is dict:
        return TrackedDict((key, tracked(item)) for key, item in value.items())
    if type(value) is tuple:
        return tuple(map(tracked, value))
    return value


def _telling(change: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(change)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = change(self, *map(tracked, args), **kwargs)
        attributes_changed(self)
        return result

    return method


for _kind, _changes in (
    (TrackedList, "append extend insert __setitem__ __iadd__"),
    (TrackedDict, "update setdefault __setitem__ __ior__"),
):
    for _change in _changes.split():
        setattr(_kind, _change, _telling(getattr(_kind, _change)))

# Attributes that hold structures are structures for JAX, too: `tape.gradient(loss, module.layers)`.
jax.tree_util.register_pytree_node(TrackedList, lambda held: (list(held), None), lambda _, values: TrackedList(values))
jax.tree_util.register_pytree_node(
    TrackedDict,
    lambda held: (list(held.values()), tuple(held)),
    lambda keys, values: TrackedDict(zip(keys, values, strict=True)),
)
