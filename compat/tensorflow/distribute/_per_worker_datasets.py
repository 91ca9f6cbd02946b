"""Datasets that each worker of a coordinator makes for itself."""

from collections.abc import Callable, Iterator
from typing import Any, final


@final
class DatasetOfEachWorker:
    """A dataset that is made anew wherever an iterator of it is."""

    def __init__(self, make: Callable[[], Any]) -> None:
        """Let `make` make it."""
        self._make = make

    def __iter__(self) -> Iterator[Any]:
        """Make the dataset, and begin with it."""
        return iter(self._make())

    def as_numpy_iterator(self) -> Iterator[Any]:
        """Make the dataset, and go through it in NumPy's arrays; by this, functions know that it is the host's."""
        return self._make().as_numpy_iterator()

    @property
    def element_spec(self) -> Any:
        """The types of its elements."""
        return self._make().element_spec
