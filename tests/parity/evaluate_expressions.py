"""Evaluates the expressions of `expressions.py` and prints the results as JSON; run under TensorFlow or the facade."""

import json
import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"


def described(result):
    """Return a result as what JSON can hold: values and types."""
    import numpy as np

    if hasattr(result, "numpy") and hasattr(result, "dtype"):
        return {"dtype": result.dtype.name, **values(np.asarray(result.numpy()))}
    if isinstance(result, np.ndarray | np.generic):
        return {"dtype": f"numpy {result.dtype}", **values(np.asarray(result))}
    if isinstance(result, list | tuple):
        return [described(item) for item in result]
    if isinstance(result, dict):
        return {key: described(item) for key, item in result.items()}
    return result if isinstance(result, str | int | float | type(None)) else type(result).__name__


def values(array):
    if array.dtype.kind == "c":
        return {"shape": array.shape, "value": [array.real.tolist(), array.imag.tolist()]}
    if array.dtype.kind in "OS":
        return {"shape": array.shape, "value": [text.decode() for text in array.reshape(-1)]}
    wide = array.astype("float64") if array.dtype.kind in "fV" else array
    return {"shape": array.shape, "value": wide.tolist()}


def evaluate(tf, setup, expressions):
    """Return each expression's described result, or the name of the exception it raises."""
    names = {"tf": tf}
    exec(setup, names)
    results = {}
    for expression in expressions:
        try:
            results[expression] = described(eval(expression, names))
        except Exception as error:
            results[expression] = {"error": type(error).__name__, "message": str(error)[:200]}
    return results


def signatures(tf, dotted_names):
    """Return the parameters of functions: names and defaults."""
    import inspect

    found = {}
    for dotted in dotted_names:
        value = tf
        for part in dotted.split(".")[1:]:
            value = getattr(value, part, None)
        try:
            parameters = inspect.signature(value).parameters.values()
        except (TypeError, ValueError):
            found[dotted] = None if value is None else "no signature"
            continue
        stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
        found[dotted] = [f"{stars.get(p.kind, '')}{p.name}{default(p.default)}" for p in parameters]
    return found


def default(value):
    import inspect

    if value is inspect.Parameter.empty:
        return ""
    if isinstance(value, tuple):
        value = list(value)  # A list as a default would be one object for all calls.
    if hasattr(value, "as_numpy_dtype"):
        return f"={value.name}"
    return f"={value.__name__ if inspect.isfunction(value) else repr(value)}"


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    import expressions
    import tensorflow as tf

    everything = [expression for group in expressions.GROUPS for expression in expressions.expressions(group)]
    print(
        json.dumps(
            {
                "results": evaluate(tf, expressions.SETUP, everything),
                "signatures": signatures(tf, json.loads(sys.stdin.read() or "[]")),
            }
        )
    )
