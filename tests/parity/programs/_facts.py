"""What the programs beside this print: one fact a line, in a form that does not depend on who computed it."""

import numpy as np
import tensorflow as tf


def show(label, value):
    """Print `label` and a value: numbers with shape and dtype, structures item by item, variables as their value."""
    print(f"{label}: {text(value)}", flush=True)


def error(label, call):
    """Print the class of the error that `call()` raises: the most specific one of Python's or of `tf.errors`."""
    try:
        result = call()
    except Exception as raised:
        print(f"{label}: raises {_error_name(raised)}", flush=True)
    else:
        print(f"{label}: no error, {text(result)}", flush=True)


def text(value):
    if value is None or isinstance(value, bool | str | int):
        return repr(value)
    if isinstance(value, float):
        return f"float {value!r}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {text(item)}" for key, item in sorted(value.items())) + "}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(text, value))})"
    if isinstance(value, bytes):
        return repr(value)
    if isinstance(value, tf.RaggedTensor):
        return f"ragged {value.dtype.name}{value.shape.as_list()} {value.to_list()}"
    if hasattr(value, "numpy") or isinstance(value, np.ndarray | np.generic):
        return _array_text(np.asarray(value.numpy() if hasattr(value, "numpy") else value))
    raise TypeError(f"There is no form for {value!r} of type {type(value).__name__}: print a part of it.")


def _array_text(array):
    return f"{array.dtype}{list(array.shape)} {array.tolist()}"


def _error_name(raised):
    for base in type(raised).__mro__:
        if base.__module__ == "builtins" or getattr(tf.errors, base.__name__, None) is base:
            return base.__name__
    return type(raised).__name__
