"""Elements that are written while they are handed out, and what is written of them is kept only if they all were."""

import abc
from collections.abc import Callable, Iterator
from typing import Any, Protocol, final

from tfdist_jax.compat.tensorflow.data._failures import Failure


class Writer(Protocol):
    """Takes elements to a file or folder."""

    def write(self, element: Any) -> None:
        """Append an element."""
        ...

    def finish(self, failed: int) -> None:
        """Give what is written its name: there are no more elements, and so many were errors."""
        ...

    def discard(self) -> None:
        """Remove what is written."""
        ...


class OnDisk(abc.ABC):
    """A plan whose elements go through files."""

    @abc.abstractmethod
    def explain_files(self) -> str:
        """Return what the files are for, for `Dataset.explain`."""


@final
class written(Iterator[Any]):
    """The items of an iterator, which a writer gets before they are handed out, and which is finished with the last one.

    Items that are errors are left out. An error in writing takes the place of the item; the others come, but are not written.
    """

    def __init__(self, items: Iterator[Any], make_writer: Callable[[], Writer], count: int) -> None:
        """Write `count` items, or as many as come if that is negative; the writer is made for the first one."""
        self._items = items
        self._make_writer: Callable[[], Writer] | None = make_writer
        self._writer: Writer | None = None
        self._left = count
        self._failed = 0

    def __next__(self) -> Any:
        try:
            item = next(self._items)
        except StopIteration:
            self._end()
            raise
        except Exception:
            self._failed += 1
            raise
        if self._is_open():
            self._write(item)
        return item

    def _is_open(self) -> bool:
        return self._writer is not None or self._make_writer is not None

    def _open(self) -> Writer:
        make, self._make_writer = self._make_writer, None
        if make is not None:
            self._writer = make()
        if self._writer is None:
            raise RuntimeError("There is no writer any more.")
        return self._writer

    def _write(self, item: Any) -> None:
        try:
            self._open().write(item)
        except BaseException:
            self._drop()
            raise
        self._left -= 1
        if self._left == 0:
            self._end()

    def _end(self) -> None:
        if self._is_open():
            writer = self._open()
            self._writer = None
            writer.finish(self._failed)

    def _drop(self) -> None:
        writer, self._writer, self._make_writer = self._writer, None, None
        if writer is not None:
            writer.discard()


@final
class holding(Iterator[Any]):
    """The items of an iterator, until the end of which an object is there."""

    def __init__(self, items: Iterator[Any], held: Any) -> None:
        """Hold an object."""
        self._items, self._held = items, held

    def __next__(self) -> Any:
        try:
            return next(self._items)
        except StopIteration:
            self._held = None
            raise


def raising_once(error: Exception) -> Iterator[Any]:
    """Return an iteration that is nothing but an error."""
    return Failure(error)
