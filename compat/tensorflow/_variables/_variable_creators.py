"""The making of variables: `tf.variable_creator_scope`, and what functions that are traced must know of it.

A traced function may make variables that live on outside of it at its first trace only.
"""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

Creator = Callable[..., Any]

_creators: ContextVar[tuple[Creator, ...]] = ContextVar("variable_creators", default=())


@contextlib.contextmanager
def variable_creator_scope(variable_creator: Creator) -> Iterator[None]:
    """Let `variable_creator(next_creator, **kwargs)` make the variables inside.

    Args:
        variable_creator: Returns a variable, usually what `next_creator(**kwargs)` returns, with the arguments
            changed. Creators of scopes inside are called first.
    """
    token = _creators.set((*_creators.get(), variable_creator))
    try:
        yield
    finally:
        _creators.reset(token)


class ByCreators(type):
    """The type of variable classes: calling them goes through the creators in whose scopes it happens."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make a variable."""
        make: Creator = super().__call__
        creators = _creators.get()
        if not creators:
            return make(*args, **kwargs)
        given = inspect.signature(cls.__init__).bind(None, *args, **kwargs)
        given.apply_defaults()
        del given.arguments["self"]
        for creator in creators:
            make = functools.partial(creator, make)
        return make(**given.arguments)


_created: ContextVar[list[Any] | None] = ContextVar("created", default=None)


@contextlib.contextmanager
def noting_creations() -> Iterator[list[Any]]:
    """Collect the variables that are made inside."""
    created: list[Any] = []
    token = _created.set(created)
    try:
        yield created
    finally:
        _created.reset(token)


def note_creation(variable: Any) -> None:
    """Tell the function that is being traced, if there is one, of a new variable."""
    created = _created.get()
    if created is not None:
        created.append(variable)
