"""The coordinator's end of data that are in a worker's process."""

import collections
import contextlib
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, final

import numpy as np

from tfdist_jax._coordinator import HeldElement
from tfdist_jax._servers._held_data import Released
from tfdist_jax._servers._soon import call_soon


@final
class DataHolder:
    """A worker's process, in which data are."""

    def __init__(self, call: Callable[..., Any], tell: Callable[[Released], object]) -> None:
        """Reach the process.

        Args:
            call: Called with the name of a method of its `HeldData`, what it is to release before, and the method's arguments.
            tell: Called with what it is to release, by the thread of `start_calls`; waits for nothing.
        """
        self._call, self._tell = call, tell
        self._numbers = itertools.count()
        self._sources: weakref.WeakKeyDictionary[Any, _Source] = weakref.WeakKeyDictionary()
        # Of elements the process is told with the next call: there is one for each.
        self._released = {kind: collections.deque[int]() for kind in ("sources", "iterations", "elements")}

    def source_of(self, key: Any, prepare: Callable[[], tuple[Callable[..., Any], Sequence[Any]]]) -> "_Source":
        """Let a source be there, as long as `key` is here: `DataWorker.source_of`."""
        if key not in self._sources:
            number, (make, arguments) = next(self._numbers), prepare()
            self._ask("load", number, make, arguments)
            self._sources[key] = _Source(self, number)
        return self._sources[key]

    def begin(self, source: int, arguments: Sequence[Any]) -> tuple[Any, "_Iteration"]:
        """Begin an iteration over a source."""
        number = next(self._numbers)
        return self._ask("begin", number, source, arguments), _Iteration(self, number)

    def take(self, iteration: int) -> tuple[int, Any] | None:
        """Take the next element of an iteration; None if there is none."""
        return self._ask("take", iteration)

    def fetch(self, element: int) -> Sequence[np.ndarray]:
        """Return the arrays of an element."""
        return self._ask("fetch", element)

    def release(self, kind: str, number: int) -> None:
        """Let something be held no longer. Finalizers call it."""
        self._released[kind].append(number)
        if kind != "elements":
            call_soon(self._tell_released)

    def _tell_released(self) -> None:
        self._tell(self._take_released())

    def _take_released(self) -> Released:
        return {kind: list(_take_all(numbers)) for kind, numbers in self._released.items()}

    def _ask(self, method: str, *arguments: Any) -> Any:
        with self.releasing() as released:
            return self._call(method, released, *arguments)

    @contextlib.contextmanager
    def releasing(self) -> Iterator[Released]:
        """Return what the process is to release with a call; it is told again, if the call fails."""
        released = self._take_released()
        try:
            yield released
        except BaseException:
            for kind, numbers in released.items():
                self._released[kind].extend(numbers)
            raise


def _take_all(numbers: "collections.deque[int]") -> Iterator[int]:
    while True:
        try:
            yield numbers.popleft()
        except IndexError:  # Other threads take, too.
            return


@final
class _Source:
    """A source there."""

    def __init__(self, holder: DataHolder, number: int) -> None:
        self._holder, self._number = holder, number

    def iterate(self, *arguments: Any) -> tuple[Any, Iterator[tuple[HeldElement, Any]]]:
        """Begin an iteration: `DataSource.iterate`."""
        return self._holder.begin(self._number, arguments)

    def __del__(self) -> None:
        self._holder.release("sources", self._number)


@final
class _Iteration(Iterator[tuple[HeldElement, Any]]):
    """An iteration over data there."""

    def __init__(self, holder: DataHolder, number: int) -> None:
        self._holder, self._number = holder, number

    def __next__(self) -> tuple[HeldElement, Any]:
        taken = self._holder.take(self._number)
        if taken is None:
            raise StopIteration
        element, told = taken
        return HeldElement(self._holder, element), told

    def __iter__(self) -> Self:
        return self

    def __del__(self) -> None:
        self._holder.release("iterations", self._number)
