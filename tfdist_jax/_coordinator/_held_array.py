"""Arrays that a worker's process holds, for whoever runs closures in another one."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, final, runtime_checkable

import jax
import numpy as np


class DataSource(Protocol):
    """Data in a worker's process."""

    def iterate(self, *arguments: Any) -> tuple[Any, Iterator[tuple["HeldElement", Any]]]:
        """Begin an iteration there; return what it tells, and its elements, with what is told of each."""
        ...


@runtime_checkable
class DataWorker(Protocol):
    """A worker that has a process of its own, in which data can be.

    Attributes:
        index: Which of the workers it is.
    """

    index: int

    def source_of(self, key: Any, prepare: Callable[[], tuple[Callable[..., Any], Sequence[Any]]]) -> DataSource:
        """Let a source of data be in the worker's process.

        Args:
            key: It is there for as long as this object is here, and not made again.
            prepare: Returns a function, and arguments: what it returns there is the source. That is called with the arguments of
                `iterate`, and returns what is to be told here, and an iterator over elements: the arrays of each, and what is to be told.
        """
        ...


class DataLostError(RuntimeError):
    """The process that held data has gone."""


@final
@dataclasses.dataclass(frozen=True)
class ArrayKind:
    """Tells of an array that stays in a worker's process.

    Attributes:
        shape: Its shape.
        dtype: Its type.
    """

    shape: tuple[int, ...]
    dtype: np.dtype


class DataHolder(Protocol):
    """A process that holds elements of data."""

    def fetch(self, element: int) -> Sequence[np.ndarray]:
        """Return the arrays of the element with a number.

        Raises:
            DataLostError: If the process has gone.
        """
        ...

    def release(self, kind: str, number: int) -> None:
        """Hold one of the "elements" no longer, sooner or later; called from any thread, at any moment."""
        ...


@final
class HeldElement:
    """An element of data in a worker's process, which holds it for as long as this is there.

    Attributes:
        holder: The process.
        number: What the process knows it by.
    """

    def __init__(self, holder: DataHolder, number: int) -> None:
        """Stand for the element that a process knows by a number."""
        self.holder, self.number = holder, number
        self._arrays: Sequence[np.ndarray] | None = None

    def fetch(self) -> Sequence[np.ndarray]:
        """Return its arrays, which come from the process the first time."""
        if self._arrays is None:
            self._arrays = self.holder.fetch(self.number)
        return self._arrays

    def stand_for(self, told: Iterable[Any]) -> list[Any]:
        """Return parts of the element, with what stands for its arrays in the places of the `ArrayKind`s that tell of them."""
        places = itertools.count()
        return [HeldArray(self, next(places), kind) if isinstance(kind, ArrayKind) else kind for kind in told]

    def __del__(self) -> None:
        self.holder.release("elements", self.number)


@final
class HeldArray:
    """An array of an element that a worker's process holds; `np.asarray` fetches it.

    Attributes:
        element: The element.
        place: Which of its arrays it is.
        shape: Its shape.
        dtype: Its type.
    """

    def __init__(self, element: HeldElement, place: int, kind: ArrayKind) -> None:
        """Stand for the array of an element at a place."""
        self.element, self.place = element, place
        self.shape, self.dtype = kind.shape, kind.dtype

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
