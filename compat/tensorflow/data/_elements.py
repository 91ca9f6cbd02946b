"""Elements of datasets: nested structures of NumPy arrays, as TensorFlow sees them."""

import collections.abc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from tfdist_jax.compat.tensorflow._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._host_values import host_value
from tfdist_jax.compat.tensorflow._shape import TensorShape, TensorSpec
from tfdist_jax.compat.tensorflow._tensor import convert_to_tensor


def map_structure(fn: Callable[..., Any], element: Any, *others: Any) -> Any:
    """Apply `fn` to the tensors of an element: tuples and dicts are structure, everything else, lists too, a tensor."""
    if isinstance(element, tuple):
        parts = [map_structure(fn, *same) for same in zip(element, *others, strict=True)]
        return type(element)(*parts) if hasattr(element, "_fields") else tuple(parts)
    if isinstance(element, collections.abc.Mapping):
        return {key: map_structure(fn, value, *(other[key] for other in others)) for key, value in element.items()}
    return fn(element, *others)


def leaves(element: Any) -> list[Any]:
    """Return the tensors of an element in order."""
    found: list[Any] = []
    map_structure(found.append, element)
    return found


def as_arrays(element: Any) -> Any:
    """Turn an element into NumPy arrays of the types its tensors have."""
    return map_structure(_as_array, element)


def _as_array(value: Any) -> np.ndarray:
    if isinstance(value, jax.Array) or hasattr(value, "stored"):
        return np.asarray(value)
    return host_value(value)


def as_tensors(element: Any) -> Any:
    """Turn an element of NumPy arrays into tensors."""
    return map_structure(convert_to_tensor, element)


def as_numpy(element: Any) -> Any:
    """Turn an element into what `as_numpy_iterator` yields: scalars become NumPy scalars."""
    return map_structure(lambda array: array[()], element)


def stack(elements: Sequence[Any]) -> Any:
    """Join elements to a batch.

    Raises:
        InvalidArgumentError: If the elements' shapes differ.
    """

    def join(*arrays: np.ndarray) -> np.ndarray:
        if len({array.shape for array in arrays}) > 1:
            from tfdist_jax.compat.tensorflow._errors import InvalidArgumentError

            shapes = sorted({str(array.shape) for array in arrays})
            raise InvalidArgumentError(
                None, None, f"Cannot batch tensors with different shapes: {', '.join(shapes)}. Use `padded_batch`."
            )
        return np.stack(arrays)

    return map_structure(join, *elements)


def rows(element: Any) -> Iterator[Any]:
    """Yield the entries along the first axis of all arrays."""
    for i in range(len(leaves(element)[0])):
        yield map_structure(lambda array, i=i: array[i, ...], element)


def spec_of(element: Any) -> Any:
    """Return the `TensorSpec`s of an element of arrays."""
    return map_structure(lambda array: TensorSpec(array.shape, _dtype(array)), element)


def batched_spec(spec: Any, size: int | None) -> Any:
    """Return the spec of batches of elements."""
    return map_structure(lambda s: TensorSpec(TensorShape([size]).concatenate(s.shape), s.dtype), spec)


def unbatched_spec(spec: Any) -> Any:
    """Return the spec of the entries of batches."""
    return map_structure(lambda s: TensorSpec(s.shape[1:], s.dtype), spec)


def _dtype(array: Any) -> Any:
    return as_dtype("string") if array.dtype.kind in "OSU" else as_dtype(array.dtype)
