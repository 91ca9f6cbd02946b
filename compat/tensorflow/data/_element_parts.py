"""Elements as lists of arrays, and back: how they are written to files.

The parts of an element are in TensorFlow's order, dictionaries by their keys; a sparse tensor is three arrays, a ragged one its
flat values and the splits of each level, None is none.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow._tensors._shape import TensorSpec
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensor, SparseTensorSpec
from tfdist_jax.compat.tensorflow.data import _elements


@final
class ElementParts:
    """The parts of elements of one spec.

    Attributes:
        specs: The spec of each part, in their order in files.
        are_tensors: Whether all parts are tensors.
    """

    def __init__(self, spec: Any) -> None:
        """Find the parts of a spec."""
        self._spec = spec
        paths = list(_paths(spec, ()))
        self._order = [number for number, _ in sorted(enumerate(paths), key=lambda item: item[1])]
        self._places = np.argsort(self._order).tolist()
        specs = _elements.leaves(spec)
        self.specs = [specs[number] for number in self._order]
        self.are_tensors = all(isinstance(part, TensorSpec) for part in specs)

    def columns(self, batch: Any) -> list[Any]:
        """Return the parts of an element, or of a batch, in their order in files."""
        parts = _elements.leaves(batch)
        return [parts[number] for number in self._order]

    def join(self, columns: Sequence[Any]) -> Any:
        """Return the element, or batch, of its parts."""
        return _elements.rebuilt(self._spec, [columns[place] for place in self._places])

    def take_apart(self, element: Any) -> list[np.ndarray]:
        """Return the arrays of an element."""
        columns = self.columns(element)
        if self.are_tensors:
            return [np.asarray(column) for column in columns]
        return [array for spec, part in zip(self.specs, columns, strict=True) for array in arrays_of(spec, part)]

    def put_together(self, arrays: Sequence[np.ndarray]) -> Any:
        """Return the element of its arrays."""
        if self.are_tensors:
            return self.join(arrays)
        left = iter(arrays)
        return self.join([part_of(spec, [next(left) for _ in range(_array_count(spec))]) for spec in self.specs])


def _paths(spec: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield for each tensor, in the structure's order, by what it is found in the order of files."""
    if isinstance(spec, Mapping):
        ranks = {key: rank for rank, key in enumerate(sorted(spec))}
        for key, part in spec.items():
            yield from _paths(part, (*path, ranks[key]))
    elif isinstance(spec, tuple):
        for number, part in enumerate(spec):
            yield from _paths(part, (*path, number))
    else:
        yield path


def _array_count(spec: Any) -> int:
    if isinstance(spec, TensorSpec):
        return 1
    if isinstance(spec, SparseTensorSpec):
        return 3
    rank = getattr(spec, "ragged_rank", None)
    return 0 if rank is None else rank + 1


def arrays_of(spec: Any, part: Any) -> list[np.ndarray]:
    """Return the arrays that a part of an element is."""
    if part is None:
        return []
    if isinstance(spec, TensorSpec) or not hasattr(part, "parts"):
        return [np.asarray(part)]
    return [np.asarray(array) for array in part.parts()]


def part_of(spec: Any, arrays: list[np.ndarray]) -> Any:
    """Return the part of an element that arrays are."""
    if not arrays:
        return None
    if isinstance(spec, TensorSpec):
        return arrays[0]
    if isinstance(spec, SparseTensorSpec):
        return SparseTensor(*arrays)
    values, *splits = arrays
    if not splits:
        return spec.as_row(values)
    return spec.value_type.from_nested_row_splits(values, splits, validate=False)
