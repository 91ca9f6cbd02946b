"""Elements of datasets: nested structures of NumPy arrays, as TensorFlow sees them."""

import collections.abc
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, final

import jax
import numpy as np

from tfdist_jax._coordinator import HeldArray
from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError
from tfdist_jax.compat.tensorflow._tensors._composite import Composite
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host_values import host_value
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, TensorSpec
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor


@final
@dataclasses.dataclass(frozen=True, repr=False)
class DatasetSpec:
    """Drop-in for `tf.data.DatasetSpec`: the type of a dataset that is a part of an element.

    Ref: https://www.tensorflow.org/api_docs/python/tf/data/DatasetSpec
    """

    element_spec: Any
    dataset_shape: Any = ()

    def __hash__(self) -> int:
        """Hash the types of the elements, whatever structure they are in."""
        return hash((DatasetSpec, *leaves(self.element_spec)))

    def is_subtype_of(self, other: Any) -> bool:
        """Tell whether all datasets of this type are of another one, too."""
        if not isinstance(other, DatasetSpec) or TensorShape(self.dataset_shape) != TensorShape(other.dataset_shape):
            return False
        try:
            parts = leaves(map_structure(_is_subtype, self.element_spec, other.element_spec))
        except (ValueError, KeyError, TypeError):
            return False
        return all(parts)

    def example(self) -> Any:
        """Return a dataset of one element."""
        # The class of datasets is built on this module.
        from tfdist_jax.compat.tensorflow.data._dataset import Dataset
        from tfdist_jax.compat.tensorflow.data._source_plans import Elements

        return Dataset(Elements([example_of(self.element_spec)], self.element_spec))

    def __repr__(self) -> str:
        return f"DatasetSpec({self.element_spec!r}, {TensorShape(self.dataset_shape)!r})"


@final
@dataclasses.dataclass(frozen=True)
class NoneTensorSpec:
    """The type of a part of an element that is None."""


def map_structure(fn: Callable[..., Any], element: Any, *others: Any) -> Any:
    """Apply `fn` to the tensors of an element: tuples and dicts are structure, everything else, lists too, a tensor."""
    # First, because every batch and element comes through here: asking for a Mapping is slow.
    if type(element) is np.ndarray or isinstance(element, np.generic):
        return fn(element, *others)
    if isinstance(element, tuple) and not isinstance(element, TensorShape):
        parts = [map_structure(fn, *same) for same in zip(element, *others, strict=True)]
        return type(element)(*parts) if hasattr(element, "_fields") else tuple(parts)
    if not others and type(element) is dict:
        return {key: map_structure(fn, value) for key, value in element.items()}
    if isinstance(element, collections.abc.Mapping):
        return {key: map_structure(fn, value, *(other[key] for other in others)) for key, value in element.items()}
    return fn(element, *others)


def _is_subtype(spec: Any, other: Any) -> bool:
    return spec.is_subtype_of(other) if hasattr(spec, "is_subtype_of") else spec == other


def map_columns(fn: Callable[[list[Any], Any], Any], elements: Sequence[Any], spec: Any) -> Any:
    """Apply `fn` to each tensor of all elements, and its spec."""
    columns = map(list, zip(*map(leaves, elements), strict=True))
    return map_structure(lambda s: fn(next(columns), s), spec)


def leaves(element: Any) -> list[Any]:
    """Return the tensors of an element in order."""
    found: list[Any] = []
    map_structure(found.append, element)
    return found


def as_arrays(element: Any) -> Any:
    """Turn an element into NumPy arrays of the types its tensors have; datasets in it stay what they are."""
    return map_structure(_as_array, element)


def _as_array(value: Any) -> Any:
    if is_whole(value):
        return value
    if isinstance(value, jax.Array) or hasattr(value, "stored"):
        return np.asarray(value)
    return host_value(value)


def is_dataset(value: Any) -> bool:
    """Tell whether a part of an element is a dataset, as windows are."""
    return hasattr(value, "as_numpy_iterator")


def is_whole(value: Any) -> bool:
    """Tell whether a part of an element stays what it is: a dataset, a sparse or ragged tensor, or None."""
    return value is None or isinstance(value, Composite) or is_dataset(value)


def as_tensors(element: Any) -> Any:
    """Turn an element of NumPy arrays into tensors; arrays that another process holds stay there."""
    return map_structure(_as_tensor, element)


def _as_tensor(value: Any) -> Any:
    return value if isinstance(value, HeldArray) or is_whole(value) else convert_to_tensor(value)


def checked_state(state: Any, types: Any) -> Any:
    """Return a state of `Dataset.reduce` as tensors of the initial one's types.

    Raises:
        TypeError: If it is not of these types, or of another structure.
    """

    def check(dtype: Any, part: Any) -> Any:
        tensor = convert_to_tensor(part, dtype_hint=dtype)
        if as_dtype(tensor.dtype) != dtype:
            raise TypeError(
                f"The element types for the new state must match the initial state. Expected {dtype!r} but got "
                f"{as_dtype(tensor.dtype)!r}."
            )
        return tensor

    try:
        return map_structure(check, types, state)
    except (ValueError, KeyError) as error:
        raise TypeError(
            f"The structure of the new state must match the initial state's, {types}; got {state}."
        ) from error


def as_numpy(element: Any) -> Any:
    """Turn an element into what `as_numpy_iterator` yields: scalars become NumPy scalars."""
    return map_structure(_as_numpy, element)


def _as_numpy(value: Any) -> Any:
    if type(value) is not np.ndarray and is_whole(value):
        return value.as_numpy_iterator() if is_dataset(value) else _as_numpy_value(value)
    array = np.asarray(value)[()]
    if isinstance(array, np.ndarray):  # A view: as in TensorFlow, nobody changes what others may see.
        array.flags.writeable = False
    return array


def as_device_arrays(element: Any) -> Any:
    """Turn an element into NumPy arrays for the devices' programs.

    Raises:
        ValueError: If there are ragged tensors in it.
    """
    return map_structure(_as_device_array, element)


def _as_device_array(value: Any) -> Any:
    if isinstance(value, Composite) and hasattr(value, "to_tensor"):
        raise ValueError(
            f"A batch for devices has a ragged tensor of shape {value.shape}, but their programs have fixed sizes. Fill it up: "
            "`dataset.map(lambda x: x.to_tensor())`, or `padded_batch` in place of `ragged_batch`."
        )
    return _as_numpy(value)


def _as_numpy_value(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") else value


def stack(elements: Sequence[Any]) -> Any:
    """Join elements to a batch.

    Raises:
        InvalidArgumentError: If the elements' shapes differ.
    """

    def join(*arrays: Any) -> Any:
        if is_whole(arrays[0]):
            return _joined_whole(arrays)
        if type(arrays[0]) is not np.ndarray and hasattr(arrays[0], "joined"):  # Rows of ragged tensors.
            return arrays[0].joined(arrays)
        if len({array.shape for array in arrays}) > 1:
            shapes = sorted({str(array.shape) for array in arrays})
            raise InvalidArgumentError(
                None, None, f"Cannot batch tensors with different shapes: {', '.join(shapes)}. Use `padded_batch`."
            )
        return np.stack(arrays)

    return map_structure(join, *elements)


def _joined_whole(parts: Sequence[Any]) -> Any:
    """Return a batch of parts that are no arrays: None of Nones, sparse and ragged tensors of such ones."""
    first = parts[0]
    if isinstance(first, Composite):
        return first.joined(parts)
    if first is None:
        return None
    raise InvalidArgumentError(
        None, None, "Cannot batch datasets. Use `flat_map` or `interleave` to take their elements."
    )


def check_rows(element: Any) -> None:
    """Raise if the parts of a batch have different numbers of rows."""
    lengths = [number for number in map(_row_count, leaves(element)) if number is not None]
    if len(set(lengths)) > 1:
        raise ValueError(
            "`unbatch()` is only supported for datasets of elements whose components have a matching leading dimension. "
            f"Encountered both {lengths[0]} and {next(length for length in lengths if length != lengths[0])}."
        )


def _row_count(part: Any) -> int | None:
    if isinstance(part, Composite):
        return part.shape[0]
    return len(part) if isinstance(part, np.ndarray) and part.ndim else None


def rows(element: Any) -> Iterator[Any]:
    """Return an iterator over the entries along the first axis of all arrays."""
    columns = zip(*map(_entries, leaves(element)), strict=True)
    if type(element) is tuple and all(isinstance(part, np.ndarray) for part in element):
        return columns
    return (rebuilt(element, entries) for entries in columns)


def pick(element: Any, positions: np.ndarray) -> Any:
    """Return rows of all arrays; views where they lie next to each other."""
    if not len(positions):
        return map_structure(itemgetter(slice(0)), element)
    first, last = int(positions[0]), int(positions[-1])
    if last - first == len(positions) - 1 and np.array_equal(positions, np.arange(first, last + 1)):
        return map_structure(itemgetter(slice(first, last + 1)), element)
    return map_structure(itemgetter(positions), element)


def split(element: Any, sizes: Sequence[int]) -> Iterator[Any]:
    """Yield parts of all arrays, so many rows each."""
    ends = itertools.accumulate(sizes)
    for size, end in zip(sizes, ends, strict=True):
        yield map_structure(itemgetter(slice(end - size, end)), element)


def _entries(array: Any) -> Iterable[Any]:
    if isinstance(array, Composite):
        return array.entries()
    # NumPy hands strings out as bare objects, which have no shape.
    return (array[i, ...] for i in range(len(array))) if array.dtype.kind == "O" else array


def rebuilt(element: Any, parts: Iterable[Any]) -> Any:
    """Return the structure of `element` with other tensors, in order."""
    remaining = iter(parts)
    return map_structure(lambda _: next(remaining), element)


def spec_of(element: Any) -> Any:
    """Return the `TensorSpec`s of an element of arrays."""
    return map_structure(_spec, element)


def _spec(value: Any) -> Any:
    if value is None:
        return NoneTensorSpec()
    if hasattr(value, "_type_spec") and not is_dataset(value):
        return value._type_spec  # noqa: SLF001 -- TensorFlow's name.
    return DatasetSpec(value.element_spec) if is_dataset(value) else TensorSpec(value.shape, _dtype(value))


def example_of(spec: Any) -> Any:
    """Return an element of a spec: zeros, one along each open size."""
    return map_structure(_example, spec)


def _example(spec: Any) -> Any:
    if hasattr(spec, "example"):
        return spec.example()
    array = np.zeros([1 if size is None else size for size in spec.shape], _numpy_dtype(spec))
    if array.dtype == object:
        array[...] = b""
    return array


def _numpy_dtype(spec: Any) -> Any:
    return object if spec.dtype.name == "string" else spec.dtype.as_numpy_dtype


def common_spec(first: Any, second: Any) -> Any:
    """Return the spec of what may be of either one.

    Raises:
        TypeError: If their structures or types differ.
    """
    try:
        return map_structure(_common, first, second)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise TypeError(
            f"Incompatible dataset elements: The elements of two datasets have different types: {first} and {second}."
        ) from None


def _common(first: Any, second: Any) -> Any:
    if first == second:
        return first
    if type(first) is not type(second):
        raise TypeError
    if isinstance(first, DatasetSpec):
        return DatasetSpec(common_spec(first.element_spec, second.element_spec), first.dataset_shape)
    if first.dtype != second.dtype or getattr(first, "ragged_rank", 0) != getattr(second, "ragged_rank", 0):
        raise TypeError
    shape = common_shape(first.shape, second.shape)
    return first.with_shape(shape) if hasattr(first, "with_shape") else TensorSpec(shape, first.dtype)


def common_shape(first: Any, second: Any) -> TensorShape:
    """Return the shape that leaves the sizes open in which two shapes differ."""
    if first.rank is None or first.rank != second.rank:
        return TensorShape(None)
    return TensorShape([size if size == other else None for size, other in zip(first, second, strict=True)])


def batched_spec(spec: Any, size: int | None) -> Any:
    """Return the spec of batches of elements."""

    def batched(one: Any) -> Any:
        if isinstance(one, NoneTensorSpec):
            return one
        if hasattr(one, "batched"):
            return one.batched(size)
        return TensorSpec(TensorShape([size]).concatenate(one.shape), one.dtype)

    return map_structure(batched, spec)


def unbatched_spec(spec: Any) -> Any:
    """Return the spec of the entries of batches."""
    unbatched = lambda s: s.unbatched() if hasattr(s, "unbatched") else TensorSpec(s.shape[1:], s.dtype)
    return map_structure(unbatched, spec)


def _dtype(array: Any) -> Any:
    return as_dtype("string") if array.dtype.kind in "OSU" else as_dtype(array.dtype)
