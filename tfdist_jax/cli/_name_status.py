"""What the facade has for a name that a program uses."""

import importlib
import importlib.metadata
import inspect
import typing
from collections.abc import Callable, Sequence
from types import MethodType, ModuleType
from typing import Any, Literal, NamedTuple, NoReturn

from tfdist_jax.cli._tensorflow_uses import CALL, FIRST_IS_TEXT

_ROOTS = {"tf": "tfdist_jax.compat.tensorflow", "keras": "keras"}

Kind = Literal["native", "emulated", "older form", "missing", "unknown"]


class Status(NamedTuple):
    """Whether a name is there.

    Attributes:
        kind: `native` computes with JAX what TensorFlow computes, `emulated` does its work in another way or has nothing to do;
            `older form` is one of earlier TensorFlow 2 and Keras 2, which works; `unknown` is an attribute of something whose
            type is seen only when the program runs.
        why: What is to be said of what is emulated or missing, and how an older form is written today.
    """

    kind: Kind
    why: str = ""


_UNKNOWN = Status("unknown")


def find_status(name: str, keywords: tuple[str, ...] = ()) -> Status:
    """Return the status of a name, as `uses_of_program` gives it, and of the arguments that it is called with.

    It is looked up in the facade, of which that part is loaded; nothing is called.
    """
    from tfdist_jax.compat.tensorflow._names._emulated import EMULATED

    value = _UNKNOWN if name.startswith(".") else _look_up(name)
    if isinstance(value, Status) and value.kind == "missing":
        return value
    older = _old_arguments(name, value)
    why = _reason_against_call(value, [keyword for keyword in keywords if keyword not in older])
    if why:
        return Status("missing", why)
    today = _today(name) or next((_instead(older[keyword], keyword) for keyword in keywords if keyword in older), None)
    if today:
        return Status("older form", f"today {today}")
    if isinstance(value, Status):
        return value
    return Status("emulated", EMULATED[name]) if name in EMULATED else Status("native")


def _instead(today: str, keyword: str) -> str:
    return f"{today} for {'a text as first argument' if keyword == FIRST_IS_TEXT else f'`{keyword}=`'}"


def _today(name: str) -> str | None:
    """Return how an older name is written today; None of any other."""
    from tfdist_jax.compat.tensorflow._names import _older

    full = f"tf.{name}" if name.partition(".")[0] == "keras" else name
    for namespace, today in _older.NAMES.items():
        if f"{full}.".startswith(f"{namespace}."):
            return today
    if _is_in_former_module(name):
        return "the public names under `keras.`"
    method = _method(name)
    return method if isinstance(method, str) else None


def _old_arguments(name: str, value: Any) -> dict[str, str]:
    """Return the older arguments of what is called, each with what is written in its place today."""
    from tfdist_jax.compat.tensorflow._names import _older

    method = _method(name)
    found = {} if isinstance(method, str) else dict(method)
    if callable(value):
        for owner, arguments in _older.ARGUMENTS.items():
            if _is_derived(value, _look_up(owner)):
                found |= arguments
    return found


def _method(name: str) -> str | dict[str, str]:
    from tfdist_jax.compat.tensorflow._names import _older

    is_of_object = name.startswith(".") or CALL in name
    return _older.METHODS.get(name.rpartition(".")[2], {}) if is_of_object else {}


def _is_in_former_module(name: str) -> bool:
    """Tell whether it is a module of Keras 2, or in one."""
    from tfdist_jax.compat.tensorflow._former._views import View

    function, call, _ = name.partition(CALL)
    if call or name.startswith("."):
        return False
    parts = function.split(".")
    return any(isinstance(_look_up(".".join(parts[:i])), View) for i in range(2, len(parts) + 1))


def _is_derived(value: Any, owner: Any) -> bool:
    """Tell whether it is a function, or a class or one that is derived from it."""
    return value is owner or (isinstance(value, type) and isinstance(owner, type) and issubclass(value, owner))


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
            value = _former_module(path)
            if value is None:
                return Status("missing", _reason(path, owner, error))
        except Exception as error:  # A library that the name needs cannot be loaded.
            return Status("missing", f"{type(error).__name__}: {error}")
    return value


def _former_module(path: str) -> Any:
    """Return TensorFlow's private code, or a module of Keras 2, if the name is that of one."""
    from tfdist_jax.compat.tensorflow._former import _keras_modules, _python

    top, _, below = path.removeprefix("tf.").partition(".")
    if path == "tf.python":
        return _python.view_python()
    return _keras_modules.view_keras_module(below) if top == "keras" else None


def _look_up_method(owner: type, name: str) -> Any:
    first, _, below = name.partition(".")
    method = getattr(owner, first, None)
    if not below and inspect.isfunction(method):
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


def _reason_against_call(function: Any, keywords: Sequence[str]) -> str | None:
    """Return why a function cannot be called in this way, if so: it only raises an error, or does not take the arguments."""
    if not callable(function):
        return None
    if _annotation(function) is NoReturn:
        return _refusal(function)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    known = {parameter.name for parameter in parameters} | {FIRST_IS_TEXT}
    unknown = [repr(name) for name in keywords if name not in known]
    return f"it has no argument {', '.join(unknown)}." if unknown else None


def _refusal(function: Callable[..., Any]) -> str | None:
    """Return the message of a function that only raises one."""
    parameters = inspect.signature(function).parameters.values()
    needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    try:
        function(*[None for _ in needed])
    except Exception as error:
        return str(error)
