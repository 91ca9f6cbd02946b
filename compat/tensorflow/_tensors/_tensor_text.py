"""How TensorFlow writes tensors in a program's output."""

from collections.abc import Iterable
from typing import Any

import numpy as np


def numpy_text(array: Any, *, is_repr: bool) -> str:
    """Return a NumPy array's numbers: a scalar's bare, those of several rows from a line of their own on.

    Args:
        array: What a tensor's `numpy()` gives.
        is_repr: Whether to write what `repr` shows rather than `str`.
    """
    if not is_repr:
        text = str(array)
    elif np.ndim(array):
        text = repr(array)
    else:
        text = repr(array.item() if isinstance(array, np.generic | np.ndarray) else array)
    return f"\n{text}" if "\n" in text else text


def tensor_repr(array: Any, dtype_name: str) -> str:
    """Return what `repr` shows of a tensor."""
    return f"<tf.Tensor: shape={np.shape(array)}, dtype={dtype_name}, numpy={numpy_text(array, is_repr=True)}>"


def tensor_str(array: Any, dtype_name: str) -> str:
    """Return what `print` shows of a tensor."""
    return f"tf.Tensor({numpy_text(array, is_repr=False)}, shape={np.shape(array)}, dtype={dtype_name})"


def variable_repr(name: str, shape: Any, dtype_name: str, array: Any = None) -> str:
    """Return what `repr` shows of a variable; its numbers only if they are given."""
    shown = f"<tf.Variable {name!r} shape={tuple(shape)} dtype={dtype_name}"
    return f"{shown}>" if array is None else f"{shown}, numpy={numpy_text(array, is_repr=True)}>"


def replicas_text(kind: str, values: Iterable[str]) -> str:
    """Return what is shown of values of replicas."""
    lines = ",\n".join(f"  {i}: {value}" for i, value in enumerate(values))
    return f"{kind}:{{\n{lines}\n}}"
