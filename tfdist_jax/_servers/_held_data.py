"""Data in a worker's process: iterations over them, and their elements until somebody has used them."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, final

import numpy as np

Element = tuple[Sequence[np.ndarray], Any]
"""The arrays of an element, and what else whoever asks for it is told."""

Released = tuple[Sequence[int], Sequence[int]]
"""The numbers of elements, and of iterations, that nobody wants any more."""


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
    """What a worker's process holds of data."""

    def __init__(self) -> None:
        """Hold nothing."""
        self._iterations: dict[int, Iterator[Element]] = {}
        self._elements: dict[int, Sequence[np.ndarray]] = {}
        self._numbers = itertools.count()

    def begin(self, iteration: int, make: Callable[..., Iterable[Element]], arguments: Sequence[Any]) -> None:
        """Begin an iteration, which the caller knows by a number, over what `make(*arguments)` returns."""
        self._iterations[iteration] = iter(make(*arguments))

    def take(self, iteration: int) -> tuple[int, Any] | None:
        """Take the next element, and hold its arrays.

        Returns:
            Its number, and what the caller is told of it; None if there is none.

        Raises:
            Exception: What the iteration raises; it may go on after that.
        """
        try:
            arrays, told = next(self._iterations[iteration])
        except StopIteration:
            return None
        number = next(self._numbers)
        self._elements[number] = arrays
        return number, told

    def fetch(self, element: int) -> Sequence[np.ndarray]:
        """Return the arrays of an element."""
        return self._elements[element]

    def release(self, elements: Sequence[int], iterations: Sequence[int]) -> None:
        """Hold elements, and what iterations have, no longer."""
        for number in elements:
            del self._elements[number]
        for number in iterations:
            del self._iterations[number]

    def find(self, argument: Any) -> Any:
        """Return an argument of a plan: itself, or what it stands for."""
        return self._elements[argument.element][argument.place] if isinstance(argument, Held) else argument
