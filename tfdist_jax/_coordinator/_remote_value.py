"""The result of a closure that a worker runs."""

import threading
from typing import Any, final


@final
class RemoteValue:
    """What a closure returns, once it has run: its value, or its error."""

    def __init__(self) -> None:
        """Have neither yet."""
        self._is_there = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None

    @property
    def is_ready(self) -> bool:
        """Whether there is a value or an error."""
        return self._is_there.is_set()

    def set_value(self, value: Any) -> None:
        """Hold a value."""
        self._value, self._error = value, None
        self._is_there.set()

    def set_error(self, error: BaseException) -> None:
        """Hold an error."""
        self._value, self._error = None, error
        self._is_there.set()

    def clear(self) -> None:
        """Have neither again, until the closure has run once more."""
        self._is_there.clear()

    def error(self) -> BaseException | None:
        """Wait until the closure has run, and return its error, if it has one."""
        self._is_there.wait()
        return self._error

    def result(self) -> Any:
        """Wait until the closure has run, and return what it has returned, or raise its error."""
        self._is_there.wait()
        if self._error is not None:
            raise self._error
        return self._value
