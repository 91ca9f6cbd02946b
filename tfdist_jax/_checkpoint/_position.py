"""Where the data and the random generators are, as a string."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax._sharding._prefetch import is_read_ahead

_BYTES, _ARRAY = "__bytes__", "__array__"


def encoded(position: Any) -> str:
    """Return a position as it is now as a string.

    Args:
        position: What JSON has, arrays, bytes, and objects with `get_state`.

    Raises:
        TypeError: If there is anything else in it.
        ValueError: If one of the objects is being read ahead of the batches that have been used.
    """
    return json.dumps(position, default=_plain)


def _plain(value: Any) -> Any:
    if callable(getattr(value, "get_state", None)):
        if is_read_ahead(value):
            raise ValueError(
                "The position is that of an iterator that `strategy.prefetch` reads ahead: it is farther than the batches that have been "
                "given out. Pass what `prefetch` has returned, which says where these were."
            )
        return value.get_state()
    if isinstance(value, bytes):
        return {_BYTES: base64.b64encode(value).decode()}
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        raise TypeError("Random keys belong to the state that is saved, not to the position.")
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        host = np.asarray(value)
        if host.dtype.hasobject or host.dtype.names:
            raise TypeError(
                f"Arrays in a position hold numbers, truth values or strings; got one of type {host.dtype}."
            )
        return {_ARRAY: [str(host.dtype), list(host.shape), base64.b64encode(host.tobytes()).decode()]}
    raise TypeError(
        f"A position is what JSON has, with arrays, bytes, and objects that have `get_state` and `set_state`; got "
        f"{type(value).__name__}."
    )


def decoded(text: str) -> Any:
    """Return a position from its text; objects are what their `get_state` has returned."""
    return json.loads(text, object_hook=_rich)


def _rich(found: dict[str, Any]) -> Any:
    match found:
        case {"__bytes__": text} if len(found) == 1:
            return base64.b64decode(text)
        case {"__array__": [dtype, shape, text]} if len(found) == 1:
            return np.frombuffer(base64.b64decode(text), jnp.dtype(dtype)).reshape(shape).copy()
    return found


def set_positions(objects: Any, position: Any, where: str = "position") -> None:
    """Set objects with `set_state` to where they were; they are in `objects` where their states are in `position`."""
    if callable(getattr(objects, "set_state", None)):
        objects.set_state(position)
        return
    if isinstance(objects, Mapping):
        items: list[tuple[Any, Any]] = list(objects.items())
    elif isinstance(objects, Sequence) and not isinstance(objects, str | bytes):
        items = list(enumerate(objects))
    else:
        return
    for key, value in items:
        found = f"{where}[{key!r}]"
        try:
            inner = position[str(key) if isinstance(position, Mapping) else key]
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"`{found}` was not saved; what was saved is {position!r:.200}.") from error
        set_positions(value, inner, found)
