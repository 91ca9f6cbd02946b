"""Tells which line of the user's has XLA compile again and again, for shapes that change."""

import collections
import logging
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, final

from tfdist_jax._user_code import is_user_code

_log = logging.getLogger("tfdist_jax")

TELL_AFTER = 10
TELL_AFTER_S = 3.0
TELL_SHARE = 0.5


@final
class CompilationLog:
    """Notes compilations of programs that differ in one size of an axis; warns once of a line that does little else."""

    def __init__(self) -> None:
        """Have noted nothing."""
        self._has_told = False
        self._sizes: collections.defaultdict[Any, set[int]] = collections.defaultdict(set)
        self._seconds: collections.defaultdict[tuple[str, int], float] = collections.defaultdict(float)
        self._began: dict[tuple[str, int], float] = {}

    def time(self, name: str, avals: Any, compile_and_run: Callable[[], Any]) -> Any:
        """Return what `compile_and_run` does, which compiles a program of this name for arguments of these types."""
        began = time.monotonic()
        result = compile_and_run()
        if not self._has_told:
            self._note(name, avals, began, time.monotonic() - began)
        return result

    def _note(self, name: str, avals: Any, began: float, seconds: float) -> None:
        line = _users_line()
        if line is None:
            return
        self._seconds[line] += seconds
        elapsed = began + seconds - self._began.setdefault(line, began)
        count = max((self._count(line, name, avals, axis) for axis in (0, 1)), default=0)
        if count >= TELL_AFTER and self._seconds[line] >= max(TELL_AFTER_S, TELL_SHARE * elapsed):
            self._has_told = True
            _log.warning(
                "%s, line %d: XLA compiles for each new shape here, %d times %s alone, %.1f s in all, which is more than half of the "
                "time. Give tensors a few sizes only: pad them, for example by `Dataset.padded_batch` or `bucket_by_sequence_length`, "
                "or drop the last, smaller batch.",
                *line,
                count,
                name,
                self._seconds[line],
            )

    def _count(self, line: tuple[str, int], name: str, avals: Any, axis: int) -> int:
        """Return for how many sizes of an axis the program has been compiled whose arguments have these sizes otherwise."""
        shapes = [aval.shape for aval in avals]
        sizes = [shape[axis] for shape in shapes if len(shape) > axis]
        if not sizes:
            return 0
        others = tuple((*shape[:axis], *shape[axis + 1 :]) for shape in shapes)
        seen = self._sizes[line, name, axis, others]
        seen.add(max(sizes))
        return len(seen)


def _users_line() -> tuple[str, int] | None:
    """Return the file and the line of the user's that this thread is at."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_user_code(frame):
        frame = frame.f_back
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)
