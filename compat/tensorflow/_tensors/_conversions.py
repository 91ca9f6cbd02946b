"""Classes of a program that become tensors, by functions that it registers."""

import contextlib
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._tensors._dtypes import DType, as_dtype

_PYTHON_TYPES = (numbers.Number, str, bytes, list, tuple, np.ndarray, np.generic)
# In the order in which they are asked: classes, function, priority.
_registered: list[tuple[tuple[type, ...], Callable[..., Any], int]] = []


def register_tensor_conversion_function(
    base_type: Any, conversion_func: Callable[..., Any], priority: int = 100
) -> None:
    """Let every operation take objects of a class where it takes tensors.

    Args:
        base_type: The class, or a tuple of classes. Classes that inherit from it are converted too.
        conversion_func: Called as `conversion_func(value, dtype, name, as_ref)`, with `dtype` None where any type will do.
            Returns a tensor of that type, or NotImplemented: then the function that comes next is asked.
        priority: Of the functions for a class, those of smaller numbers are asked first; of the same number, the earlier.

    Raises:
        TypeError: If `base_type` is no class, or one of Python's or NumPy's numbers, strings and sequences.

    Example:
        >>> import tfdist_jax.compat.tensorflow as tf
        >>> class Celsius:
        ...     degrees = 20.0
        >>> tf.register_tensor_conversion_function(Celsius, lambda value, **_: tf.constant(value.degrees))
        >>> float(Celsius() + tf.constant(1.0))
        21.0
    """
    classes = base_type if isinstance(base_type, tuple) else (base_type,)
    if not all(isinstance(item, type) for item in classes):
        raise TypeError(f"Argument `base_type` must be a type or a tuple of types. Obtained: {base_type!r}")
    if any(issubclass(item, _PYTHON_TYPES) for item in classes):
        raise TypeError(
            f"Cannot register conversions for Python's numbers and sequences or NumPy's types, got {base_type!r}."
        )
    if not callable(conversion_func):
        raise TypeError(f"Argument `conversion_func` must be callable. Received {conversion_func!r}.")
    _registered.append((classes, conversion_func, priority))
    _registered.sort(key=lambda entry: entry[2])


def is_registered(value: Any) -> bool:
    """Whether a function was registered for the value's class."""
    return bool(_registered) and any(isinstance(value, classes) for classes, _, _ in _registered)


def convert(value: Any, wanted: DType | None, hint: DType | None) -> Any:
    """Return the tensor that the registered functions make of a value: of a type, of one that is preferred, or of any.

    Raises:
        RuntimeError: If it is of another type than `wanted`.
        ValueError: If none of them makes one.
    """
    if hint is not None and wanted is None:
        with contextlib.suppress(TypeError, ValueError, RuntimeError):
            return convert(value, hint, None)
    for classes, function, _ in _registered:
        tensor = (
            function(value, dtype=wanted, name=None, as_ref=False) if isinstance(value, classes) else NotImplemented
        )
        if tensor is NotImplemented:
            continue
        if wanted is not None and as_dtype(tensor.dtype) is not wanted:
            raise RuntimeError(
                f"Conversion function {function} for type {type(value)} returned incompatible dtype: "
                f"requested = {wanted.name}, actual = {as_dtype(tensor.dtype).name}"
            )
        return tensor
    raise ValueError(f"Attempt to convert a value ({value!r}) with an unsupported type ({type(value)}) to a Tensor.")
