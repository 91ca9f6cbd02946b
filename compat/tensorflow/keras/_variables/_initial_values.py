"""First values of small variables are cut from rows of a few sizes, so that few programs draw the values of all shapes.

XLA takes longer to compile the random numbers of a small shape, 0.2 to 0.9 s on a CPU, than to draw a long row of them.
"""

import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import jax
import numpy as np

from tfdist_jax._internals import current_trace, eval_trace
from tfdist_jax._thread_state import having
from tfdist_jax.compat.tensorflow.keras._change import Hook
from tfdist_jax.compat.tensorflow.keras._internals import backend

_LENGTHS = (1 << 14, 1 << 17, 1 << 20)
_are_made: ContextVar[bool] = ContextVar("first_values_are_made", default=False)


def first_values() -> AbstractContextManager[None]:
    """Mark the code that makes a variable's first value: other draws may be many, and are for the device alone."""
    return having(_are_made, True)


def _from_row(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def filled(shape: Any, *args: Any, **kwargs: Any) -> Any:
        numbers = [*args, *(value for name, value in kwargs.items() if name != "seed")]
        length = _length(shape) if _can_be_cut() and not any(map(np.ndim, numbers)) else None
        if length is None:
            return original(shape, *args, **kwargs)
        row = np.asarray(original((length,), *args, **kwargs))
        # A transfer needs no program, but may share the memory.
        return jax.device_put(row[: math.prod(shape)].reshape(shape).copy())

    return filled


def _length(shape: Any) -> int | None:
    """Return how long a row for this shape is; None if it is big, or not all of it is known."""
    if not isinstance(shape, tuple | list) or not all(isinstance(size, int) for size in shape):
        return None
    return next((length for length in _LENGTHS if math.prod(shape) <= length), None)


def _can_be_cut() -> bool:
    """Whether a first value is made, outside of programs, and each number depends on its place in the row alone."""
    config: Any = jax.config
    is_by_place = config.jax_threefry_partitionable and config.jax_default_prng_impl == "threefry2x32"
    return _are_made.get() and is_by_place and current_trace() is eval_trace


CHANGES = tuple(
    Hook(
        owner,
        name,
        _from_row,
        "shape",
        "small first values of all shapes come from few programs; the numbers are the same",
    )
    for owner, names in ((backend.random, "normal truncated_normal uniform"), (backend.numpy, "ones zeros"))
    for name in names.split()
)
