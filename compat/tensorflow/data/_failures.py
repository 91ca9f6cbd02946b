"""Iterators that an error does not end: it comes in an element's place, and the next element is taken after it.

An exception ends Python's generators and most of `itertools`; only what takes one item for each (`map`, `filter`, `zip`) goes on.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, final

from tfdist_jax.compat.tensorflow._platform._errors import OpError


@final
class Failure(Iterator[Any]):
    """Stands for an element that could not be made; as an iterator it raises the error once, and is over."""

    def __init__(self, error: Exception) -> None:
        """Keep the error."""
        self.error = error
        self._has_raised = False

    def __next__(self) -> Any:
        if self._has_raised:
            raise StopIteration
        self._has_raised = True
        raise self.error


@final
class guarded(Iterator[Any]):
    """The items of an iterator; a `Failure` in place of each that raises, so that generators may go through them."""

    def __init__(self, items: Iterator[Any]) -> None:
        """Guard an iterator."""
        self._items = items

    def __next__(self) -> Any:
        try:
            return next(self._items)
        except StopIteration:
            raise
        except Exception as error:
            return Failure(error)


@final
class raising(Iterator[Any]):
    """The items of an iterator, of which each `Failure` is raised."""

    def __init__(self, items: Iterator[Any]) -> None:
        """Undo `guarded`."""
        self._items = items

    def __next__(self) -> Any:
        item = next(self._items)
        if type(item) is Failure:
            raise item.error
        return item


@final
class without_failures(Iterator[Any]):
    """The items of an iterator that operations can make.

    `report` is told of the errors of others, `report_end` at the end of the last one, if there was no item that could be made.

    Errors of Python's, such as a wrong name in a function given to `map`, are no fault of an element, and come as they are.
    """

    def __init__(
        self, items: Iterator[Any], report: Callable[[OpError], None], report_end: Callable[[OpError], None]
    ) -> None:
        """Leave failures out."""
        self._items = items
        self._report, self._report_end = report, report_end
        self._last: OpError | None = None
        self._has_made = False

    def __next__(self) -> Any:
        while True:
            try:
                item = next(self._items)
            except StopIteration:
                if self._last is not None and not self._has_made:
                    self._report_end(self._last)
                self._last = None
                raise
            except OpError as error:
                self._last = error
                self._report(error)
            else:
                self._has_made = True
                return item


def flatten(iterations: Iterator[Iterable[Any]]) -> Iterator[Any]:
    """Return an iterator over the items of all iterations, one after the other."""
    return itertools.chain.from_iterable(guarded(iterations))


@final
class first(Iterator[Any]):
    """The first `count` items; errors do not count."""

    def __init__(self, items: Iterator[Any], count: int) -> None:
        """Start with so many to come."""
        self._items = items
        self._left = count

    def __next__(self) -> Any:
        if self._left <= 0:
            raise StopIteration
        item = next(self._items)
        self._left -= 1
        return item


@final
class every(Iterator[Any]):
    """Each `step`-th item, from number `start` on; errors in between come too, and do not count."""

    def __init__(self, items: Iterator[Any], start: int, step: int = 1) -> None:
        """Start with `start` items to pass over."""
        self._items = items
        self._passed = start
        self._step = step

    def __next__(self) -> Any:
        while self._passed:
            next(self._items)
            self._passed -= 1
        item = next(self._items)
        self._passed = self._step - 1
        return item


@final
class groups(Iterator[list[Any]]):
    """Lists of `size` items, the last one smaller unless it is dropped; an error drops the items that it comes behind."""

    def __init__(self, items: Iterator[Any], size: int, *, drop_remainder: bool) -> None:
        """Group an iterator's items."""
        self._items = items
        self._size = size
        self._least = size if drop_remainder else 1

    def __next__(self) -> list[Any]:
        group = list(itertools.islice(self._items, self._size))
        if len(group) < self._least:
            raise StopIteration
        return group


@final
class together(Iterator[tuple[Any, ...]]):
    """Tuples of one item of each iterator; where one raises, the others go on too, so that they stay side by side."""

    def __init__(self, iterators: Iterable[Iterator[Any]]) -> None:
        """Zip iterators."""
        self._zipped = zip(*map(guarded, iterators), strict=False)

    def __next__(self) -> tuple[Any, ...]:
        items = next(self._zipped)
        for item in items:
            if type(item) is Failure:
                raise item.error
        return items


@final
class remember(Iterator[Any]):
    """The items of an iterator, which are handed to `keep` with the last one of `count`, or at the end."""

    def __init__(
        self,
        items: Iterator[Any],
        keep: Callable[[list[Any]], None],
        count: int,
        size_of: Callable[[Any], int] = lambda item: 1,
    ) -> None:
        """Remember the items from the first one on; each is as many as `size_of` says, `count` is negative if not known."""
        self._items = items
        self._keep: Callable[[list[Any]], None] | None = keep
        self._size_of = size_of
        self._left = count
        self._seen: list[Any] = []

    def __next__(self) -> Any:
        try:
            item = next(self._items)
        except StopIteration:
            self._end()
            raise
        self._seen.append(item)
        self._left -= self._size_of(item)
        if self._left == 0:
            self._end()
        return item

    def _end(self) -> None:
        keep, self._keep = self._keep, None
        if keep is not None:
            keep(self._seen)
