"""Slices of tensors between places that are themselves tensors."""

import functools
from collections.abc import Callable
from typing import Any

from jax.core import Tracer

from tfdist_jax._errors import ConcreteValueRequiredError
from tfdist_jax._internals import known_value


def accept_slices(cls: Any) -> None:
    """Let `tensor[:n]` tell, on an array class, when a program that is being traced cannot express it.

    XLA's arrays have fixed sizes: `n` must be known, or follow from constants.
    """
    original: Callable[[Any, Any], Any] = cls.__getitem__

    @functools.wraps(original)
    def getitem(self: Any, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        if any(type(part) is slice and _is_traced(part) for part in parts):
            parts = tuple(_known_slice(part) if type(part) is slice else part for part in parts)
            return original(self, parts)
        return original(self, key)

    cls.__getitem__ = getitem


def _is_traced(part: slice) -> bool:
    return any(isinstance(place, Tracer) for place in (part.start, part.stop, part.step))


def _known_slice(part: slice) -> slice:
    return slice(*map(_known, (part.start, part.stop, part.step)))


def _known(place: Any) -> Any:
    if not isinstance(place, Tracer):
        return place
    value = known_value(place)
    if value is None:
        raise ConcreteValueRequiredError(
            "A slice ends at a place that is not known while the function is traced, but XLA's arrays have fixed sizes. "
            "Use Python numbers or `tf.shape(x)`; or, for a part of known size, `tf.gather` with `start + tf.range(size)`."
        )
    return int(value)
