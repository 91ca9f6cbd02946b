"""Slices of tensors between places that are themselves tensors."""

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax.core import Tracer
from jax.export import is_symbolic_dim

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
        symbols = {
            axis: _symbol(part) for axis, part in enumerate(parts) if type(part) is slice and _symbol(part) is not None
        }
        if symbols and all(type(part) is slice for part in parts):
            return _take_first(original, self, parts, symbols)
        return original(self, key)

    cls.__getitem__ = getitem


def _symbol(part: slice) -> Any:
    """Return the symbol at which a slice from the beginning ends while Keras finds out shapes, or None."""
    if part.start not in (None, 0) or part.step not in (None, 1):
        return None
    stop = part.stop.item() if getattr(part.stop, "has_symbols", False) and not part.stop.ndim else part.stop
    return stop if is_symbolic_dim(stop) else None


def _take_first(original: Any, array: Any, parts: tuple[Any, ...], symbols: dict[int, Any]) -> Any:
    """Return the first elements along axes; whether there are as many as a symbol says cannot be compared, and need not be."""
    sizes = tuple(array.shape)
    symbols = {axis: symbol for axis, symbol in symbols.items() if not is_symbolic_dim(sizes[axis])}
    result = original(array, tuple(slice(None) if axis in symbols else part for axis, part in enumerate(parts)))
    for axis, symbol in symbols.items():
        result = jnp.take(result, jnp.arange(symbol), axis=axis, mode="clip")
    return result


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
