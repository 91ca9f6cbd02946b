"""Checks of columns' arguments, which raise what TensorFlow raises."""

from collections.abc import Sequence
from typing import Any

from tfdist_jax.compat.tensorflow._tensors._dtypes import DType, as_dtype


def check_key(key: Any) -> None:
    """Raise ValueError unless a feature's key is a string."""
    if not isinstance(key, str):
        raise ValueError(f"key must be a string. Received: {key!r} of type {type(key).__name__}.")


def category_type(dtype: Any, what: str) -> DType:
    """Return a type that categories can have: strings or integers.

    Raises:
        ValueError: If it is another one.
    """
    known = as_dtype(dtype)
    if known.name != "string" and not known.is_integer:
        raise ValueError(f"{what} dtype must be string or integer. Received: {known!r}.")
    return known


def number_type(dtype: Any, what: str) -> DType:
    """Return a type of numbers that become float32.

    Raises:
        ValueError: If it is another one.
    """
    known = as_dtype(dtype)
    if not (known.is_integer or known.is_floating):
        raise ValueError(f"dtype must be convertible to float. Received: {known!r} for {what}.")
    return known


def vector_shape(shape: Any, key: str) -> tuple[int, ...]:
    """Return a shape, which may be given as one number, as a tuple.

    Raises:
        TypeError: If a size is no integer.
        ValueError: If one is smaller than 1.
    """
    sizes = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    if not all(isinstance(size, int) for size in sizes):
        raise TypeError(f"shape dimensions must be integer. Received: {shape!r} for key {key}.")
    if any(size < 1 for size in sizes):
        raise ValueError(f"shape dimensions must be greater than 0. Received: {shape!r} for key {key}.")
    return sizes


def default_vector(default: Any, shape: tuple[int, ...], dtype: DType, key: str) -> Any:
    """Return a default value in a shape, as nested tuples; None if there is none.

    Raises:
        TypeError: If it is of another type.
        ValueError: If it is of another shape.
    """
    if default is None:
        return None
    given = default.tolist() if hasattr(default, "tolist") else default
    if isinstance(given, list | tuple):
        if not _fits(given, shape):
            raise ValueError(
                f"The shape of default_value must be equal to given shape. Received: {default!r}, shape {shape}, key {key}."
            )
    elif _is_number(given, dtype):
        return _filled(shape, given)
    if not isinstance(given, list | tuple) or not all(_is_number(number, dtype) for number in _flat(given)):
        raise TypeError(
            f"default_value must be compatible with dtype. Received: {default!r}, dtype {dtype!r}, key {key}."
        )
    return _as_tuples(given)


def _is_number(value: Any, dtype: DType) -> bool:
    return isinstance(value, int) or (isinstance(value, float) and dtype.is_floating)


def _flat(nested: Any) -> list[Any]:
    return [number for part in nested for number in _flat(part)] if isinstance(nested, list | tuple) else [nested]


def _fits(nested: Any, shape: tuple[int, ...]) -> bool:
    if not isinstance(nested, list | tuple) or not shape:
        return not isinstance(nested, list | tuple) and not shape
    return len(nested) == shape[0] and all(_fits(part, shape[1:]) for part in nested)


def _filled(shape: tuple[int, ...], number: Any) -> Any:
    return (_filled(shape[1:], number),) * shape[0] if shape else number


def _as_tuples(nested: Any) -> Any:
    return tuple(map(_as_tuples, nested)) if isinstance(nested, list | tuple) else nested


def check_column(column: Any, kind: type, what: str) -> None:
    """Raise ValueError unless a column is of a kind."""
    if not isinstance(column, kind):
        raise ValueError(f"{what} must be a {kind.__name__}. Received: {column!r} of type {type(column).__name__}.")
