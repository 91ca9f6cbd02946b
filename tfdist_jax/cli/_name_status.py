"""What the facade has for a name that a program uses."""

import importlib
import importlib.metadata
import inspect
import typing
from collections.abc import Callable
from types import MethodType, ModuleType
from typing import Any, Literal, NamedTuple, NoReturn

from tfdist_jax.cli._tensorflow_uses import CALL

_ROOTS = {"tf": "tfdist_jax.compat.tensorflow", "keras": "keras"}

Kind = Literal["native", "emulated", "missing", "unknown"]


class Status(NamedTuple):
    """Whether a name is there.

    Attributes:
        kind: `native` computes with JAX what TensorFlow computes, `emulated` does its work in another way or has nothing to do;
            `unknown` is an attribute of something whose type is seen only when the program runs.
        why: What is to be said of what is emulated or missing.
    """

    kind: Kind
    why: str = ""


_UNKNOWN = Status("unknown")


def find_status(name: str, keywords: tuple[str, ...] = ()) -> Status:
    """Return the status of a name, as `uses_of_program` gives it, and of the arguments that it is called with.

    It is looked up in the facade, of which that part is loaded; nothing is called.
    """
    from tfdist_jax.compat.tensorflow._names._emulated import EMULATED

    value = _look_up(name)
    if isinstance(value, Status):
        return value
    why = _reason_against_call(value, keywords) if callable(value) else None
    if why:
        return Status("missing", why)
    return Status("emulated", EMULATED[name]) if name in EMULATED else Status("native")


def _look_up(name: str) -> Any:
    """Return what a name stands for, or a status that says why that is not known."""
    function, call, attribute = name.rpartition(CALL)
    if call:
        owner = _look_up(function)
        # A function that is missing is said to be so where it is used itself.
        returned = None if isinstance(owner, Status) else _returned(owner)
        return _UNKNOWN if returned is None else _look_up_method(returned, attribute.removeprefix("."))
    root, *parts = name.split(".")
    value, path = importlib.import_module(_ROOTS[root]), root
    for part in parts:
        owner, path = value, f"{path}.{part}"
        try:
            value = getattr(owner, part)
        except AttributeError as error:
            return Status("missing", _reason(path, owner, error))
        except Exception as error:  # A library that the name needs cannot be loaded.
            return Status("missing", f"{type(error).__name__}: {error}")
    return value


def _look_up_method(owner: type, name: str) -> Any:
    method = getattr(owner, name, None)
    if inspect.isfunction(method):
        return MethodType(method, owner)  # Its `self` is not among the arguments.
    return (
        Status("missing", f"`{owner.__name__}` has no such method.")
        if method is None and _is_dataset(owner)
        else _UNKNOWN
    )


def _reason(path: str, owner: Any, error: AttributeError) -> str:
    """Return why a name is not there; what it is called stands in front."""
    if isinstance(owner, ModuleType) and owner.__name__.partition(".")[0] == "keras":
        return f"Keras {importlib.metadata.version('keras')} does not have it."
    return str(error).removeprefix(f"`{path}` is not there (yet): ")


def _returned(function: Any) -> type | None:
    """Return the class of what a class or function returns, where it is sure."""
    if isinstance(function, type):
        return function
    hint = _annotation(function)
    if hint is typing.Self:
        return getattr(function, "__self__", None)
    return hint if _is_dataset(hint) else None


def _annotation(function: Callable[..., Any]) -> Any:
    try:
        return typing.get_type_hints(function).get("return")
    except (TypeError, NameError):  # No function of Python, or with types that only type checkers import.
        return None


def _is_dataset(value: Any) -> bool:
    """Tell whether it is a class of datasets, which have no attributes but those of their class."""
    from tfdist_jax.compat.tensorflow.data import Dataset

    return isinstance(value, type) and issubclass(value, Dataset)


def _reason_against_call(function: Callable[..., Any], keywords: tuple[str, ...]) -> str | None:
    """Return why a function cannot be called in this way, if so: it only raises an error, or does not take the arguments."""
    if _annotation(function) is NoReturn:
        return _refusal(function)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    unknown = [repr(name) for name in keywords if name not in {parameter.name for parameter in parameters}]
    return f"it has no argument {', '.join(unknown)}." if unknown else None


def _refusal(function: Callable[..., Any]) -> str | None:
    """Return the message of a function that only raises one."""
    parameters = inspect.signature(function).parameters.values()
    needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    try:
        function(*[None for _ in needed])
    except Exception as error:
        return str(error)
