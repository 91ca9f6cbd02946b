"""`tf.variable_creator_scope`: functions of the program's own around the making of variables."""

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
