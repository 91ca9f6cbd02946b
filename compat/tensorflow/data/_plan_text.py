"""How the parameters of plans are told: arrays by shape and type, functions by name and place."""

import dataclasses
import functools
import inspect
import reprlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np

# So many of a list's entries are shown.
_MOST = 8


class Named:
    """A plan that a class of TensorFlow's makes.

    Attributes:
        called: The class's name.
    """

    called: ClassVar[str]


def parameters(step: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a dataclass that say what it does, with their values, where these are not as by default."""
    for field in dataclasses.fields(step):
        value = getattr(step, field.name)
        if field.repr and field.name != "parent" and not (value is field.default or value is None):
            yield field.name, value


def method(step: Any) -> str:
    """Return the name of the method, or class, that makes a plan of this class."""
    if isinstance(step, Named):
        return step.called
    words = type(step).__name__.removesuffix("Rows")
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in words).lstrip("_")


def text(value: Any) -> str:
    """Return a short string of a parameter; never the values of an array, which may be large."""
    match value:
        case np.ndarray() | np.generic() | jax.Array():
            return f"{tuple(value.shape)} {value.dtype}"
        case Mapping():
            return f"{{{', '.join(f'{key!r}: {text(part)}' for key, part in value.items())}}}"
        case tuple() | list():
            shown = [*map(text, value[:_MOST]), *["..."] * (len(value) > _MOST)]
            joined = ", ".join(shown)
            return f"[{joined}]" if isinstance(value, list) else f"({joined}{',' * (len(shown) == 1)})"
        case None | bool() | int() | float() | str() | bytes():
            return reprlib.repr(value)
    if type(value).__module__.startswith(__name__.partition(".")[0]) and not callable(value):
        return repr(value)
    return function(value)


def function(fn: Any) -> str:
    """Return a function's name and place: for an object of another kind, its class's."""
    fn = inspect.unwrap(fn)
    while isinstance(fn, functools.partial):
        fn = inspect.unwrap(fn.func)
    code = getattr(fn, "__code__", None)
    place = f" at {Path(code.co_filename).name}:{code.co_firstlineno}" if code else ""
    return f"<{'function ' if code else ''}{getattr(fn, '__qualname__', type(fn).__qualname__)}{place}>"
