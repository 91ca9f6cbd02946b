"""The coordinator's end of data that are in a worker's process."""

import collections
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, final

import numpy as np

from tfdist_jax._coordinator import HeldElement

Call = Callable[..., Any]


@final
class DataHolder:
    """A worker's process, in which data are."""

    def __init__(self, call: Call) -> None:
        """Call the process's methods by `call(method, *arguments)`."""
        self._call = call
        self._num_iterations = 0
        # Whoever drops something may hold any lock, so the process is told later.
        self._released = collections.deque[int](), collections.deque[int]()

    def iterate(self, make: Callable[..., Any], *arguments: Any) -> Iterator[tuple[HeldElement, Any]]:
        """Begin an iteration there: `DataWorker.iterate`."""
        number, self._num_iterations = self._num_iterations, self._num_iterations + 1
        self._call("begin_data", self._take_released(), number, make, arguments)
        return _Iteration(self, number)

    def take(self, iteration: int) -> tuple[int, Any] | None:
        """Take the next element of an iteration; None if there is none."""
        return self._call("take", self._take_released(), iteration)

    def fetch(self, element: int) -> Sequence[np.ndarray]:
        """Return the arrays of an element."""
        return self._call("fetch", element)

    def release(self, element: int) -> None:
        """Let an element be held no longer."""
        self._released[0].append(element)

    def end(self, iteration: int) -> None:
        """Let an iteration be no longer."""
        self._released[1].append(iteration)

    def _take_released(self) -> tuple[list[int], list[int]]:
        elements, iterations = ([each.popleft() for _ in range(len(each))] for each in self._released)
        return elements, iterations


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
        return HeldElement(self._holder, element, self._holder.fetch, self._holder.release), told

    def __iter__(self) -> Self:
        return self

    def __del__(self) -> None:
        self._holder.end(self._number)
