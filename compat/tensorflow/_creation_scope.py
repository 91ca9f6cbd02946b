"""Variables made while a function is traced: allowed at its first trace only, when they go on to live outside of it."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

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
