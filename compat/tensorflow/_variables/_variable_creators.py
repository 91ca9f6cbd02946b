"""The making of variables: `tf.variable_creator_scope`, and what functions that are traced must know of it.

A traced function may make variables that live on outside of it at its first trace only.
"""

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

from tfdist_jax._thread_state import having
from tfdist_jax._user_code import has_named_libraries, is_named_library
from tfdist_jax.compat.tensorflow._platform._context import current_strategy, replica_context

Creator = Callable[..., Any]

_creators: ContextVar[tuple[Creator, ...]] = ContextVar("variable_creators", default=())
_keeps_whole: ContextVar[bool] = ContextVar("keeps_whole", default=False)


@contextlib.contextmanager
def variable_creator_scope(variable_creator: Creator) -> Iterator[None]:
    """Let `variable_creator(next_creator, **kwargs)` make the variables inside.

    Args:
        variable_creator: Returns a variable, usually what `next_creator(**kwargs)` returns, with the arguments
            changed. Creators of scopes inside are called first.
    """
    with having(_creators, (*_creators.get(), variable_creator)):
        yield


def keeping_whole() -> AbstractContextManager[None]:
    """Let the strategy make no variables in its own way, such as in parts: those that belong to another variable are like that."""
    return having(_keeps_whole, True)


class ByCreators(type):
    """The type of variable classes: calling them goes through the creators in whose scopes it happens.

    A program's own subclasses are made directly, as creators themselves make them.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make a variable."""
        if any(isinstance(base, ByCreators) for base in cls.__bases__):
            return super().__call__(*args, **kwargs)
        make: Creator = functools.partial(_make_once, super().__call__)
        strategy = current_strategy()
        of_strategy = None if strategy is None or _keeps_whole.get() else strategy.variable_creator
        creators = _creators.get() if of_strategy is None else (of_strategy, *_creators.get())
        if not creators:
            return make(*args, **kwargs)
        given = inspect.signature(cls.__init__).bind(None, *args, **kwargs)
        given.apply_defaults()
        del given.arguments["self"]
        for creator in creators:
            make = functools.partial(creator, make)
        return make(**given.arguments)


def _is_variable_of_keras_2(cls: type, instance: Any) -> bool:
    """Let a library that the user has named see Keras's variables as it knows them from Keras 2: as TensorFlow's."""
    if type.__instancecheck__(cls, instance):
        return True
    # Others ask more often, and mean the class.
    return is_named_library(sys._getframe(1)) and hasattr(type(instance), "storage") and hasattr(instance, "assign")


if has_named_libraries():
    ByCreators.__instancecheck__ = _is_variable_of_keras_2


def _make_once(make: Creator, *args: Any, **kwargs: Any) -> Any:
    """Make a variable for all replicas, if the code runs in one."""
    context = replica_context()
    return make(*args, **kwargs) if context is None else context.make_once(lambda: make(*args, **kwargs))


class UnknownInitialValueError(ValueError):
    """A variable was to be made, while a function is traced, from a value that depends on the function's tensors."""


_created: ContextVar[list[Any] | None] = ContextVar("created", default=None)


@contextlib.contextmanager
def noting_creations() -> Iterator[list[Any]]:
    """Collect the variables that are made inside."""
    created: list[Any] = []
    with having(_created, created):
        yield created


def note_creation(variable: Any) -> None:
    """Tell the function that is being traced, if there is one, of a new variable."""
    created = _created.get()
    if created is not None:
        created.append(variable)


def is_new(variable: Any) -> bool:
    """Whether the function that is being traced has made the variable."""
    created = _created.get()
    return created is not None and any(one is variable for one in created)
