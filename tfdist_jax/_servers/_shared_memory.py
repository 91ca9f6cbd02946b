"""Memory that two processes of a machine share: one writes arrays into it, the other takes them as they lie there.

It has no name and no file, goes from one process to the other over their connection, and is there as long as one of them has it.
"""

import collections
import dataclasses
import itertools
import logging
import mmap
import os
import weakref
from collections.abc import Iterator, Sequence
from typing import final

import numpy as np

_log = logging.getLogger("tfdist_jax")
ALIGNMENT = 64  # Of memory that JAX takes for an array as it is.
_MOST_BLOCKS = 2  # One is written while the other one is still read.
_LEAST_BYTES = 1 << 16  # Of arrays that are worth it.
_MOST_BYTES = 1 << 26  # Each connection keeps so much for each block.


@final
@dataclasses.dataclass(frozen=True)
class Loan:
    """Memory into which arrays have been written.

    Attributes:
        block: Its number.
        file: Its file descriptor, where the other end does not have it yet: to be sent, and closed.
    """

    block: int
    file: int | None


@final
class Lender:
    """Writes arrays into memory that the other end of a connection reads, and then gives back."""

    def __init__(self) -> None:
        """Have no memory yet."""
        self._blocks: list[np.ndarray] = []
        self._free = set[int]()

    def lend(self, arrays: Sequence[memoryview]) -> Loan | None:
        """Write arrays one after another; None where they are few or too many bytes, or the other end still reads what it has."""
        spans = _spans([each.nbytes for each in arrays])
        bytes_of_all = spans[-1].stop if spans else 0
        if not _LEAST_BYTES <= bytes_of_all <= _MOST_BYTES:
            return None
        loan = self._choose(bytes_of_all)
        if loan is not None:
            for span, array in zip(spans, arrays, strict=True):
                self._blocks[loan.block][span] = np.frombuffer(array, np.uint8)
        return loan

    def take_back(self, blocks: Sequence[int]) -> None:
        """Write into blocks again that the other end has given back."""
        self._free.update(blocks)

    def _choose(self, size: int) -> Loan | None:
        for block in self._free:
            if self._blocks[block].nbytes >= size:
                self._free.remove(block)
                return Loan(block, None)
        if not self._free and len(self._blocks) == _MOST_BLOCKS:
            return None
        try:
            memory, file = _allocate(size)
        except OSError:  # Such as where there are too many files. They can still go over the connection.
            _log.debug("There is no memory to share.", exc_info=True)
            return None
        if len(self._blocks) < _MOST_BLOCKS:
            self._blocks.append(memory)
            return Loan(len(self._blocks) - 1, file)
        block = self._free.pop()
        self._blocks[block] = memory
        return Loan(block, file)


@final
class Borrower:
    """Reads arrays in memory that the other end of a connection has written, which it gives back when nobody uses them any more."""

    def __init__(self) -> None:
        """Have no memory yet."""
        self._blocks: dict[int, mmap.mmap] = {}
        self._unused = collections.deque[int]()

    def take(self, block: int, file: int | None, sizes: Sequence[int]) -> list[memoryview]:
        """Return the arrays that a loan's block has, of so many bytes; its file is closed."""
        if file is not None:
            try:
                self._blocks[block] = mmap.mmap(file, 0)
            finally:
                os.close(file)
        whole = np.frombuffer(self._blocks[block], np.uint8)
        weakref.finalize(whole, self._unused.append, block).atexit = False  # All arrays in it keep it.
        return [whole[span].data for span in _spans(sizes)]

    def give_back(self) -> list[int]:
        """Return which blocks are in use no longer, and have not been given back before."""
        return list(self._pop_unused())

    def _pop_unused(self) -> Iterator[int]:
        while self._unused:
            yield self._unused.popleft()


def _spans(sizes: Sequence[int]) -> list[slice]:
    """Return where arrays of so many bytes lie."""
    starts = itertools.accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in sizes), initial=0)
    return [slice(start, start + size) for start, size in zip(starts, sizes, strict=False)]


def _allocate(size: int) -> tuple[np.ndarray, int]:
    """Return memory, and the file descriptor by which others can have it.

    Raises:
        OSError: If there is none.
    """
    file = os.memfd_create("tfdist_jax")
    try:
        os.posix_fallocate(file, 0, size)  # What it would find missing later ends the process.
        return np.frombuffer(mmap.mmap(file, size), np.uint8), file
    except BaseException:
        os.close(file)
        raise
