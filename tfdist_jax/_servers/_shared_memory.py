"""Memory that two processes of a machine share: one writes arrays into it, the other copies them from there.

It has no name and no file, goes from one process to the other over their connection, and is there as long as one of them has it.
"""

import itertools
import logging
import mmap
import os
from collections.abc import Sequence
from typing import final

import numpy as np

CAN_SHARE = hasattr(os, "memfd_create")  # Python might have been built for older systems.
_log = logging.getLogger("tfdist_jax")
_ALIGNMENT = 64  # Of memory that JAX takes for an array as it is.
_LEAST_BYTES = 1 << 16  # Of arrays that are worth it.
_MOST_BYTES = 1 << 26  # A power of two. A connection keeps up to so much for what it sends, and for what it receives.
_NOTHING = np.empty(0, np.uint8)


@final
class Outgoing:
    """Memory in which a connection's other end finds the arrays of a message, until it answers."""

    def __init__(self) -> None:
        """Have no memory yet."""
        self._memory = _NOTHING
        self._is_shared = False
        self._refusals = self._skipped = 0

    def write(self, arrays: Sequence[memoryview]) -> bool:
        """Write arrays; False where the memory is not shared, or too small, or they are not worth it."""
        size = sum(_padded(each.nbytes) for each in arrays)
        if not self._is_shared or not _LEAST_BYTES <= size <= self._memory.nbytes:
            return False
        for span, array in zip(_spans([each.nbytes for each in arrays]), arrays, strict=True):
            self._memory[span] = np.frombuffer(array, np.uint8)
        return True

    def offer(self, arrays: Sequence[memoryview]) -> int | None:
        """Take memory in which such arrays have their place from now on, where it is too small and they are worth it.

        Returns:
            Its file descriptor, for the caller to send and to close.
        """
        size = sum(_padded(each.nbytes) for each in arrays)
        if not max(_LEAST_BYTES, self._memory.nbytes + 1) <= size <= _MOST_BYTES:
            return None
        if self._skipped:
            self._skipped -= 1
            return None
        self._memory, self._is_shared = _NOTHING, False
        try:
            # More than it needs, so that messages that grow do not ask for it each time.
            self._memory, file = _allocate(1 << (size - 1).bit_length())
        except OSError:  # Such as where too many files are open. The connection takes the arrays as well.
            _log.debug("There is no memory to share.", exc_info=True)
            self._wait_longer()
            return None
        return file

    def hear(self, is_accepted: bool) -> None:
        """Take to mind whether the other end, which has said something since, has the memory that has been offered last."""
        self._is_shared = is_accepted
        if is_accepted:
            self._refusals = 0
        elif self._memory is not _NOTHING:
            self._memory = _NOTHING
            self._wait_longer()

    def _wait_longer(self) -> None:
        self._refusals += 1
        self._skipped = 2**self._refusals


@final
class Incoming:
    """Memory that a connection's other end has offered.

    Attributes:
        is_shared: Whether this end has what has been offered last.
    """

    def __init__(self) -> None:
        """Have no memory yet."""
        self._memory = _NOTHING
        self.is_shared = False

    def accept(self, file: int | None) -> None:
        """Take memory by its file descriptor, if that has come, and close it."""
        self._memory, self.is_shared = _NOTHING, False
        if file is None:
            return
        try:
            self._memory, self.is_shared = np.frombuffer(mmap.mmap(file, 0), np.uint8), True
        except OSError:  # As in `offer`.
            _log.debug("Memory cannot be shared.", exc_info=True)
        finally:
            os.close(file)

    def read(self, sizes: Sequence[int]) -> list[memoryview]:
        """Return a copy of arrays of so many bytes that have been written."""
        arrays = list(map(allocate_array, sizes))
        for span, array in zip(_spans(sizes), arrays, strict=True):
            array[:] = self._memory[span]
        return [each.data for each in arrays]


def allocate_array(size: int) -> np.ndarray:
    """Return memory of so many bytes that JAX takes as it is."""
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size]


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _spans(sizes: Sequence[int]) -> list[slice]:
    """Return where arrays of so many bytes lie."""
    starts = itertools.accumulate(map(_padded, sizes), initial=0)
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
