"""Data in a worker's process: sources, iterations over them, and their elements until somebody has used them."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np

Element = tuple[Sequence[np.ndarray], Any]
"""The arrays of an element, and what else whoever asks for it is told."""

Source = Callable[..., tuple[Any, Iterator[Element]]]
"""Begins an iteration; it returns what whoever wants that is told, and the elements."""

Released = Mapping[str, Sequence[int]]
"""The numbers of what nobody wants any more: of "sources", "iterations" and "elements"."""


@final
@dataclasses.dataclass(frozen=True)
class Held:
    """An argument of a plan that lies in the worker's process already.

    Attributes:
        element: The element's number.
        place: Which of its arrays it is.
    """

    element: int
    place: int


@final
class HeldData:
    """What a worker's process holds of data, by numbers."""

    def __init__(self) -> None:
        """Hold nothing."""
        self._sources: dict[int, Source] = {}
        self._iterations: dict[int, Iterator[Element]] = {}
        self._elements: dict[int, Sequence[Any]] = {}
        self._numbers = itertools.count()

    def load(self, source: int, make: Callable[..., Source], arguments: Sequence[Any]) -> None:
        """Hold the source that `make(*arguments)` returns, which the caller knows by a number."""
        self._sources[source] = make(*arguments)

    def begin(self, iteration: int, source: int, arguments: Sequence[Any]) -> Any:
        """Begin an iteration, which the caller knows by a number, over a source, and return what he is told."""
        told, self._iterations[iteration] = self._sources[source](*arguments)
        return told

    def take(self, iteration: int) -> tuple[int, Any] | None:
        """Take the next element, and hold its arrays.

        Returns:
            Its number, and what the caller is told of it; None if there is none.
        """
        try:
            arrays, told = next(self._iterations[iteration])
        except StopIteration:
            return None
        return self.keep(arrays), told

    def keep(self, arrays: Sequence[Any]) -> int:
        """Hold arrays, of NumPy or JAX, as an element, and return its number."""
        number = next(self._numbers)
        self._elements[number] = arrays
        return number

    def fetch(self, element: int) -> Sequence[np.ndarray]:
        """Return the arrays of an element, for another process."""
        return list(map(np.asarray, self._elements[element]))

    def release(self, released: Released) -> None:
        """Hold something no longer, also if the caller has said so before."""
        held = {"sources": self._sources, "iterations": self._iterations, "elements": self._elements}
        for kind, numbers in released.items():
            for number in numbers:
                held[kind].pop(number, None)

    def find(self, argument: Any) -> Any:
        """Return an argument of a plan: itself, or what it stands for."""
        return self._elements[argument.element][argument.place] if isinstance(argument, Held) else argument
