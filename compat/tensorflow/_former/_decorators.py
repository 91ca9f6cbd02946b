"""`tensorflow.python.util`: decorators that copied code of TensorFlow's has, and that change nothing here."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

contextmanager = contextlib.contextmanager


def _leaving(*args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    """Return a decorator that leaves the function or class as it is."""
    return lambda decorated: decorated


tf_export = keras_export = estimator_export = _leaving
RegisterStatistics = _leaving
deprecated = deprecated_args = deprecated_arg_values = deprecated_endpoints = _leaving


def deprecated_argument_lookup(new_name: str, new_value: Any, old_name: str, old_value: Any) -> Any:
    """Return the value that was given, under its new or its old name.

    Raises:
        ValueError: If both were given.
    """
    if old_value is None:
        return new_value
    if new_value is not None:
        raise ValueError(f"Cannot specify both '{old_name}' and '{new_name}'.")
    return old_value


def make_decorator(target: Any, decorator_func: Any, *args: Any, **kwargs: Any) -> Any:
    """Return a wrapper that has the name, text and signature of what it wraps."""
    return functools.wraps(target)(decorator_func)


def unwrap(decorated: Any) -> tuple[list[Any], Any]:
    """Return the wrappers of a function, the outermost first, and the function itself."""
    wrappers = []
    while hasattr(decorated, "__wrapped__"):
        wrappers.append(decorated)
        decorated = decorated.__wrapped__
    return wrappers, decorated
