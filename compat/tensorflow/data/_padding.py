"""Batches of tensors that are filled up to the same shape."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._platform._errors import DataLossError
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, TensorSpec
from tfdist_jax.compat.tensorflow.data import _elements, _failures
from tfdist_jax.compat.tensorflow.data._batching import batch_count
from tfdist_jax.compat.tensorflow.data._plan import Batches, Plan
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PaddedBatch(Batches):
    """`batch_size` elements at a time, filled up to the same shape; those beyond `limits` are errors."""

    parent: Plan
    batch_size: int
    padded_shapes: Any
    padding_values: Any
    limits: Any = dataclasses.field(repr=False)
    drop_remainder: bool = False

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        elements = self.parent.elements(seed_log)
        return map(self._join, _failures.groups(elements, self.batch_size, drop_remainder=self.drop_remainder))

    def _join(self, group: list[Any]) -> Any:
        return _elements.map_structure(join, self.limits, self.padding_values, *group)

    def make_spec(self) -> Any:
        filled = _elements.map_structure(_filled_spec, self.parent.make_spec(), self.padded_shapes)
        return _elements.batched_spec(filled, self.rows_in_each())

    def cardinality(self) -> int:
        return batch_count(self.parent.cardinality(), self.batch_size, drop_remainder=self.drop_remainder)

    def rows_in_each(self) -> int | None:
        return self.batch_size if self.drop_remainder else None


def _filled_spec(spec: TensorSpec, shape: TensorShape) -> TensorSpec:
    return TensorSpec(shape, spec.dtype)


def shapes(spec: Any, given: Any) -> Any:
    """Return the shape to fill each tensor of an element up to; sizes of None stand for the longest of a batch.

    Raises:
        TypeError: If the shapes are not in the elements' structure.
        ValueError: If none are given for tensors of unknown rank, or if one is too small.
    """
    if given is None:
        return _elements.map_structure(_own_shape, spec)
    if isinstance(spec, tuple) and not isinstance(given, tuple):
        raise TypeError(f"`padded_shapes` must be a tuple, as the elements {spec} are, got {given!r}.")
    return _elements.map_structure(_wanted_shape, spec, given)


def _wanted_shape(spec: TensorSpec, given: Any) -> TensorShape:
    shape, own = _shape(given), spec.shape
    fits = own.rank is None or (
        own.rank == shape.rank
        and all(None in (size, wanted) or size <= wanted for size, wanted in zip(own, shape, strict=True))
    )
    if not fits:
        raise ValueError(
            f"The padded shape {tuple(shape)} is not compatible with the shape {tuple(own)} of the corresponding input "
            "component."
        )
    return shape


def _own_shape(spec: Any) -> TensorShape:
    if spec.shape.rank is None:
        raise ValueError(f"`padded_shapes` must be given for tensors whose rank is unknown, such as {spec}.")
    return spec.shape


def open_shape(shape: TensorShape) -> TensorShape:
    """Return the shape of the same rank all sizes of which are a batch's longest."""
    return TensorShape([None for _ in shape])


def _shape(given: Any) -> TensorShape:
    listed = np.asarray(given.as_list() if isinstance(given, TensorShape) else given, object)
    if listed.ndim > 1:
        raise ValueError(f"Padded shape {given} must be a vector of sizes, but its shape was {listed.shape}.")
    sizes = listed.ravel().tolist()
    return TensorShape([None if size in (None, -1) else int(size) for size in sizes])


def values(spec: Any, given: Any) -> Any:
    """Return the value that fills up each tensor of an element.

    Raises:
        TypeError: If a value does not have the tensor's type.
    """
    if not isinstance(given, tuple | dict):
        return _elements.map_structure(lambda s: _value(s, given), spec)
    return _elements.map_structure(_value, spec, given)


def _value(spec: Any, given: Any) -> Any:
    is_text = spec.dtype.name == "string"
    if given is None:
        return b"" if is_text else np.zeros((), spec.dtype.as_numpy_dtype)
    value = _elements.as_arrays(given)
    kind = "string" if value.dtype.kind in "OSU" else value.dtype
    has_type = hasattr(given, "dtype")
    if is_text != (kind == "string") or (has_type and not is_text and kind != spec.dtype.as_numpy_dtype):
        raise TypeError(
            f"Mismatched type between padding value {given!r} and input dataset's component {spec.dtype!r}."
        )
    return value[()] if is_text else value.astype(spec.dtype.as_numpy_dtype)


def to_boundary(spec: Any, given: Any, boundaries: Sequence[int], bucket: int) -> Any:
    """Return the shapes whose open sizes are the longest that belongs into a bucket.

    Raises:
        InvalidArgumentError: If the bucket is the last one, which has no end.
    """
    if bucket == len(boundaries):
        raise invalid(f"With pad_to_bucket_boundary=True elements must be shorter than {boundaries[-1]}.")
    longest = boundaries[bucket] - 1
    fill = lambda shape: TensorShape([longest if size is None else size for size in shape])
    return _elements.map_structure(fill, shapes(spec, given))


def join(shape: TensorShape, value: Any, *arrays: Any) -> np.ndarray:
    """Return the batch of arrays, filled up with `value` to `shape`, or where that is open to the longest.

    Raises:
        InvalidArgumentError: If an array has another rank.
        DataLossError: If one is larger.
    """
    if any(np.ndim(array) != shape.rank for array in arrays):
        ranks = sorted({np.ndim(array) for array in arrays})
        raise invalid(f"All elements must have the same rank as the padded shape {shape}. Got ranks {ranks}.")
    longest = np.max([array.shape for array in arrays], axis=0) if shape.rank else ()
    wanted = [n if size is None else size for n, size in zip(longest, shape, strict=True)]
    if any(n > size for n, size in zip(longest, wanted, strict=True)):
        raise DataLossError(
            None,
            None,
            f"Attempted to pad to a smaller size than the input element: to {wanted}, but the largest one is "
            f"{list(map(int, longest))}.",
        )
    batch = np.full([len(arrays), *wanted], value, arrays[0].dtype)
    for i, array in enumerate(arrays):
        # The ellipsis keeps a text from being put in as an array.
        batch[(i, *(slice(0, n) for n in array.shape), ...)] = array
    return batch
