"""What tells pipelines apart: a digest of a plan's steps, of the arrays in it and of its functions."""

import dataclasses
import functools
import hashlib
import inspect
import sys
from collections.abc import Mapping
from types import CellType, CodeType
from typing import Any

import jax
import numpy as np

from tfdist_jax._user_code import is_user_file
from tfdist_jax.compat.tensorflow._tensors._composite import Composite
from tfdist_jax.compat.tensorflow.data._plan import Plan

# So deep are the values followed that functions refer to.
_DEPTH = 6


def fingerprint(plan: Plan) -> str:
    """Return a name for a plan: another one for other steps, parameters, arrays or functions.

    Functions count by what they do and by the numbers, strings, arrays and functions that they refer to, also as attributes of a
    program's own objects. What libraries' objects hold, such as variables, layers and tables, does not count.
    """
    digest = hashlib.sha256()
    _add(digest, plan, _DEPTH)
    return str(int.from_bytes(digest.digest()[:8], "big"))


def _add(digest: Any, value: Any, depth: int) -> None:
    digest.update(f"<{type(value).__qualname__}".encode())
    match value:
        case np.ndarray() | np.generic():
            digest.update(f"{value.dtype}{value.shape}".encode())
            array = np.asarray(value)
            digest.update(
                repr(array.tolist()).encode() if array.dtype.kind == "O" else np.ascontiguousarray(array).data
            )
        case None | bool() | int() | float() | complex() | str() | bytes():
            digest.update(repr(value).encode())
        case jax.Array():
            _add(digest, np.asarray(value), depth)
        case Composite():
            _add_all(digest, value.parts(), depth)
        case CodeType():
            digest.update(value.co_code + repr(value.co_names).encode())
            _add_all(digest, value.co_consts, depth)
        case Mapping():
            _add_all(digest, [part for item in value.items() for part in item], depth)
        case tuple() | list():
            _add_all(digest, value, depth)
        case functools.partial():
            _add_all(digest, [value.func, value.args, value.keywords], depth)
        case _ if depth:
            _add_all(digest, _parts(value), depth - (not isinstance(value, Plan)))
    digest.update(b">")


def _add_all(digest: Any, values: Any, depth: int) -> None:
    for value in values:
        _add(digest, value, depth)


def _parts(value: Any) -> list[Any]:
    """Return what an object is made of, as far as that says what it does."""
    if dataclasses.is_dataclass(value):
        # Fields that are not shown are no parameters.
        return [getattr(value, field.name) for field in dataclasses.fields(value) if field.repr]
    function = inspect.unwrap(getattr(value, "given", value))
    code = getattr(function, "__code__", None)
    if code is None:
        said = "" if hasattr(value, "numpy") else repr(value)
        return [_attributes(value) if " at 0x" in said else said]
    cells = [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]
    referred = [function.__globals__.get(name) for name in code.co_names]
    own = _attributes(getattr(function, "__self__", None))
    return [code, function.__defaults__, own, *filter(_says_something, referred), *cells]


def _says_something(value: Any) -> bool:
    kinds = int | float | complex | str | bytes | tuple | list | dict | np.ndarray | jax.Array
    return isinstance(value, kinds) or inspect.isfunction(value) or bool(_attributes(value))


def _attributes(value: Any) -> dict[str, Any]:
    """Return what an object of a program's own class holds; nothing of a library's."""
    if inspect.ismodule(value) or inspect.isclass(value) or inspect.isroutine(value):
        return {}
    file = getattr(sys.modules.get(type(value).__module__), "__file__", None)
    is_own = type(value).__module__ != "builtins" and (file is None or is_user_file(file))
    return dict(sorted(getattr(value, "__dict__", {}).items())) if is_own else {}
