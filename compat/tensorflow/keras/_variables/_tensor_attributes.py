"""What Keras notes on tensors as attributes, which JAX's arrays cannot hold: masks, and the logits behind probabilities."""

import weakref
from collections.abc import Callable
from typing import Any

from jax.core import Tracer

from tfdist_jax._internals import ArrayImpl
from tfdist_jax.compat.tensorflow.keras._change import Addition

MASK = "_keras_mask"
LOGITS = "_keras_logits"


def _make_attribute(name: str) -> property:
    """Make an attribute that arrays and tracers can have; as under TensorFlow it is there once it has been set."""
    # By the identity of a tensor, which is not hashable; an entry goes with its tensor.
    entries: dict[int, tuple[weakref.ref[Any], Any]] = {}

    def missing(tensor: Any) -> AttributeError:
        return AttributeError(f"{type(tensor).__name__!r} object has no attribute {name!r}", name=name, obj=tensor)

    def forget(key: int) -> Callable[[weakref.ref[Any]], None]:
        def forget_entry(reference: weakref.ref[Any]) -> None:
            # Another tensor may have the identity already.
            if (entry := entries.get(key)) is not None and entry[0] is reference:
                del entries[key]

        return forget_entry

    def get_value(tensor: Any) -> Any:
        entry = entries.get(id(tensor))
        if entry is None:
            raise missing(tensor)
        return entry[1]

    def set_value(tensor: Any, value: Any) -> None:
        key = id(tensor)
        entries[key] = weakref.ref(tensor, forget(key)), value

    def delete_value(tensor: Any) -> None:
        if entries.pop(id(tensor), None) is None:
            raise missing(tensor)

    return property(get_value, set_value, delete_value)


# Keras keeps what it cannot set as an attribute in tables of its own, or goes without.
CHANGES = tuple(
    Addition(owner, name, attribute)
    for name, attribute in ((name, _make_attribute(name)) for name in (MASK, LOGITS))
    for owner in (ArrayImpl, Tracer)
)
