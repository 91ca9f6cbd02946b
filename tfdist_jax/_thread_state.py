"""What holds in a thread while a block runs, and what is put back if an interrupt comes as such a block begins or ends.

An exception of a signal's handler, such as KeyboardInterrupt, can come before the code that ends a block does anything: then what the block
has changed stays. A generator whose block it is ends it when it is freed, with the exception, which may be when another block runs: so the
blocks of this module are no generators. What others have left is put back where programs are traced, and around each call of a step.
"""

import contextvars
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, TypeVar, final

from tfdist_jax._internals import note_thread_settings

_Value = TypeVar("_Value")


@final
class _Having(AbstractContextManager[None]):
    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[Any], value: Any) -> None:
        self._variable, self._value = variable, value

    def __enter__(self) -> None:
        self._token = self._variable.set(self._value)

    def __exit__(self, *error: object) -> None:
        self._variable.reset(self._token)


_variables: set[ContextVar[Any]] = set()


def restored(variable: ContextVar[_Value]) -> ContextVar[_Value]:
    """Return a context variable, which has a default: where blocks restore the thread's state, it is put back, too."""
    _variables.add(variable)
    return variable


def having(variable: ContextVar[_Value], value: _Value) -> AbstractContextManager[None]:
    """Return a block in which a context variable, which has a default, has a value."""
    return _Having(restored(variable), value)


Note = Callable[[], Callable[[], None]]
"""Notes something of this thread, and returns what puts it back."""


def _note_variables() -> Callable[[], None]:
    before = contextvars.copy_context()

    def put_back() -> None:
        for variable in list(_variables):
            earlier = before[variable] if variable in before else contextvars.Context().run(variable.get)
            if variable.get() is not earlier:
                variable.set(earlier)

    return put_back


_notes: list[Note] = [note_thread_settings, _note_variables]


def put_back_after_errors(note: Note) -> None:
    """Let `restoring_thread_state` call `note` when a block begins, and what that has returned if the block raises."""
    if note not in _notes:
        _notes.append(note)


@final
class _Restoring(AbstractContextManager[None]):
    __slots__ = ("_notes", "_put_back")

    def __init__(self, notes: Sequence[Note]) -> None:
        self._notes = notes

    def __enter__(self) -> None:
        self._put_back = [note() for note in self._notes]

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None and kind is not GeneratorExit:  # Of a generator that is freed: another block may run.
            for put_back in self._put_back:
                put_back()


def restoring_thread_state() -> AbstractContextManager[None]:
    """Return a block in which programs are traced: if it raises, the thread is as before, also if blocks inside have not ended well."""
    return _Restoring(_notes)


def restoring_variables() -> AbstractContextManager[None]:
    """Return a block that does the same for the variables of `having` alone, which takes less than a microsecond."""
    return _Restoring((_note_variables,))
