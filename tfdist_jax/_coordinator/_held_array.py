"""Arrays that a worker's process holds, for whoever runs closures in another one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, final, runtime_checkable

import jax
import numpy as np


@runtime_checkable
class DataWorker(Protocol):
    """A worker that has a process of its own, in which data can be.

    Attributes:
        index: Which of the workers it is.
    """

    index: int

    def iterate(self, make: Callable[..., Iterable[Any]], *arguments: Any) -> Iterator[tuple["HeldElement", Any]]:
        """Begin an iteration in the worker's process.

        Args:
            make: Called there; it returns, for each element, its arrays, and what is to be told here.
            arguments: What it is called with.

        Returns:
            An iterator over the elements, and what is told of them.
        """
        ...


@final
class HeldElement:
    """An element of data in a worker's process, which holds it for as long as this is there.

    Attributes:
        holder: The process.
        number: What the process knows it by.
    """

    def __init__(
        self,
        holder: Any,
        number: int,
        fetch: Callable[[int], Sequence[np.ndarray]],
        release: Callable[[int], object],
    ) -> None:
        """Stand for an element.

        Args:
            holder: The process.
            number: What it knows the element by.
            fetch: Returns the arrays of the element with a number.
            release: Lets the process hold it no longer, sooner or later; called from any thread, at any moment.
        """
        self.holder, self.number = holder, number
        self._fetch, self._release = fetch, release
        self._arrays: Sequence[np.ndarray] | None = None

    def fetch(self) -> Sequence[np.ndarray]:
        """Return its arrays, which come from the process the first time."""
        if self._arrays is None:
            self._arrays = self._fetch(self.number)
        return self._arrays

    def __del__(self) -> None:
        self._release(self.number)


@final
class HeldArray:
    """An array of an element that a worker's process holds; `np.asarray` fetches it.

    Attributes:
        element: The element.
        place: Which of its arrays it is.
        shape: Its shape.
        dtype: Its type.
    """

    def __init__(self, element: HeldElement, place: int, shape: tuple[int, ...], dtype: np.dtype) -> None:
        """Stand for the array of an element at a place."""
        self.element, self.place = element, place
        self.shape, self.dtype = shape, dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.element.fetch()[self.place], dtype, copy=copy)

    def astype(self, dtype: Any, *, copy: bool = True) -> Any:
        """Return it as another type: itself, if it is of that type and need not be copied."""
        return self if dtype == self.dtype and not copy else np.asarray(self).astype(dtype, copy=False)


def fetch(value: Any) -> Any:
    """Return the array, on the device where this process computes, if it is one that a worker holds; else the value itself."""
    if not isinstance(value, HeldArray):
        return value
    with jax.enable_x64(True):  # Types of 64 bits stay what they are.
        return jax.numpy.asarray(np.asarray(value))
