"""Arguments and results of functions as JSON: structures of specs and constants."""

import collections
import functools
import inspect
from collections.abc import Mapping
from typing import Any

from tfdist_jax.compat.tensorflow._tensors._dtypes import DType, as_dtype
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, TensorSpec

_CONSTANTS = (bool, int, float, str, type(None))


ANY_PARAMETERS = inspect.signature(lambda *args, **kwargs: None)
"""Those of a function that does not tell its own."""


class NotSavableError(ValueError):
    """A function cannot be part of a SavedModel; the message says why, and what to do."""


def encode(value: Any) -> dict[str, Any]:
    """Return a structure as JSON has it.

    Raises:
        NotSavableError: If something in it is neither a spec nor a constant that JSON has.
    """
    if isinstance(value, TensorSpec):
        shape = None if value.shape.rank is None else value.shape.as_list()
        return {"spec": [shape, value.dtype.name, value.name]}
    if type(value) in _CONSTANTS:
        return {"constant": value}
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, Mapping):
        return {"dict": [[encode(key), encode(each)] for key, each in value.items()]}
    fields = getattr(value, "_fields", None)
    if isinstance(value, tuple) and fields is not None:
        return {"namedtuple": [type(value).__name__, [[name, encode(getattr(value, name))] for name in fields]]}
    if isinstance(value, list | tuple):
        return {"list" if isinstance(value, list) else "tuple": [encode(each) for each in value]}
    raise NotSavableError(
        f"it takes or returns a {type(value).__name__} ({value!r}). A saved function takes and returns tensors, numbers, strings "
        "and None, in lists, tuples and dicts: write one that passes the tensors alone"
    )


def decode(code: Mapping[str, Any]) -> Any:
    """Return the structure that `encode` has written."""
    ((kind, content),) = code.items()
    match kind:
        case "spec":
            shape, dtype, name = content
            return TensorSpec(TensorShape(shape), as_dtype(dtype), name)
        case "constant":
            return content
        case "dtype":
            return as_dtype(content)
        case "dict":
            return {decode(key): decode(each) for key, each in content}
        case "namedtuple":
            name, fields = content
            return _class_of(name, tuple(field for field, _ in fields))(*(decode(each) for _, each in fields))
        case "list":
            return [decode(each) for each in content]
        case "tuple":
            return tuple(decode(each) for each in content)
    raise ValueError(f"A SavedModel of this version has no {kind!r} among a function's arguments.")


@functools.cache
def _class_of(name: str, fields: tuple[str, ...]) -> Any:
    return collections.namedtuple(name, fields)


def as_decoded(value: Any) -> Any:
    """Return a structure of the classes that `decode` makes: a named tuple is one by its name and fields."""
    fields = getattr(value, "_fields", None)
    if isinstance(value, tuple) and fields is not None:
        return _class_of(type(value).__name__, tuple(fields))(*map(as_decoded, value))
    if isinstance(value, Mapping):
        return {key: as_decoded(each) for key, each in value.items()}
    if isinstance(value, list) or type(value) is tuple:
        return (list if isinstance(value, list) else tuple)(map(as_decoded, value))
    return value


def encode_parameters(signature: inspect.Signature | None) -> list[Any] | None:
    """Return a function's parameters as JSON has them; None if they are not known."""
    return None if signature is None else [_encode_parameter(each) for each in signature.parameters.values()]


def _encode_parameter(parameter: inspect.Parameter) -> list[Any]:
    default = parameter.default
    if default is inspect.Parameter.empty:
        return [parameter.name, parameter.kind.name]
    try:
        return [parameter.name, parameter.kind.name, encode(default)]
    except NotSavableError:
        # A call that leaves it to its default cannot be saved either.
        return [parameter.name, parameter.kind.name, {"constant": None}]


def decode_parameters(code: list[Any]) -> inspect.Signature:
    """Return the parameters that `encode_parameters` has written."""
    empty = inspect.Parameter.empty
    kind_of = lambda name: getattr(inspect.Parameter, name)
    return inspect.Signature(
        [
            inspect.Parameter(name, kind_of(kind), default=decode(*default) if default else empty)
            for name, kind, *default in code
        ]
    )
