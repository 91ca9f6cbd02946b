"""Datasets that each worker of a coordinator makes for itself."""

from collections.abc import Callable, Iterator
from typing import Any, final


@final
class DatasetOfEachWorker:
    """A dataset that is made anew wherever an iterator of it is.

    Attributes:
        make: Makes it.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        """Let `make` make it."""
        self.make = make

    def __iter__(self) -> Iterator[Any]:
        """Make the dataset, and begin with it."""
        return iter(self.make())

    def as_numpy_iterator(self) -> Iterator[Any]:
        """Make the dataset, and go through it in NumPy's arrays; by this, functions know that it is the host's."""
        return self.make().as_numpy_iterator()

    @property
    def element_spec(self) -> Any:
        """The types of its elements."""
        return self.make().element_spec
