"""Telling of functions that are traced again and again: on the condition, and to the logger, of TensorFlow."""

import weakref
from collections.abc import Callable
from typing import Any, final

from tfdist_jax.compat.tensorflow._platform._logging import get_logger

_CALLS_IN_MIND = 10
_TOO_MANY_TRACES = 5
_TIMES_TOLD = 2


@final
class TraceCounter:
    """Counts the recent calls of a function, and those of them that have traced it.

    Attributes:
        calls: How many calls have found their program since the last one that traced; whoever calls counts them.
    """

    __slots__ = ("__weakref__", "_calls_by_trace", "_told", "calls")

    def __init__(self) -> None:
        """Begin with no call."""
        self.calls = 0
        self._calls_by_trace: list[int] = []
        self._told = 0

    def count_trace(self, name: str) -> None:
        """Note a call that has traced the function `name`; tell if too many of the last ones have."""
        before = self._calls_by_trace.pop() if self._calls_by_trace else 0
        self._calls_by_trace += [count for count in (before + self.calls, 1) if count]
        self.calls = 0
        while sum(self._calls_by_trace[1:]) > _CALLS_IN_MIND:
            del self._calls_by_trace[0]
        if len(self._calls_by_trace) >= _TOO_MANY_TRACES and self._told < _TIMES_TOLD:
            self._told += 1
            get_logger().warning(
                "%d out of the last %d calls to %s triggered tf.function retracing: each time it is traced and compiled. Make the "
                "tf.function once, outside of loops; give it tensors of few different shapes; and pass what changes from "
                "call to call, such as numbers, as tensors: Python values are constants of its program.",
                len(self._calls_by_trace),
                sum(self._calls_by_trace),
                name,
            )


_by_code: weakref.WeakKeyDictionary[Any, TraceCounter] = weakref.WeakKeyDictionary()


def trace_counter(fn: Callable[..., Any]) -> TraceCounter:
    """Return the counter of a function's code: also of a `tf.function` that is made anew in each turn of a loop."""
    while hasattr(fn, "__wrapped__"):
        fn = fn.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]
    code = getattr(getattr(fn, "__func__", fn), "__code__", None)
    return TraceCounter() if code is None else _by_code.setdefault(code, TraceCounter())
