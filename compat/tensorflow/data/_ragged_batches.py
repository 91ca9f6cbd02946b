"""Batches of tensors whose shapes differ: ragged ones, and sparse ones."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._platform._errors import DataLossError
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, TensorSpec
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensor, SparseTensorSpec
from tfdist_jax.compat.tensorflow.data import _elements, _failures
from tfdist_jax.compat.tensorflow.data._batching import batch_count
from tfdist_jax.compat.tensorflow.data._plan import Batches, Plan
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog
from tfdist_jax.compat.tensorflow.ragged._batches import join_arrays
from tfdist_jax.compat.tensorflow.ragged._ragged_tensor import RaggedTensor, RaggedTensorSpec


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RaggedBatch(Batches):
    """`batch_size` elements at a time, ragged where their shapes are not known; `row_splits_dtype` is TensorFlow's."""

    parent: Plan
    batch_size: int
    drop_remainder: bool
    row_splits_dtype: Any

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        elements = self.parent.elements(seed_log)
        return map(self._join, _failures.groups(elements, self.batch_size, drop_remainder=self.drop_remainder))

    def _join(self, group: list[Any]) -> Any:
        return _elements.map_structure(self._join_parts, self.parent.make_spec(), *group)

    def _join_parts(self, spec: Any, *parts: Any) -> Any:
        if not isinstance(spec, TensorSpec):
            return _elements.stack(parts)
        # A spec may be that of examples: what differs all the same is ragged, too.
        shapes = [np.shape(part) for part in parts]
        differs = [len({shape[axis] for shape in shapes}) > 1 for axis in range(min(map(len, shapes)))]
        rank = max(_ragged_rank(spec), *(axis + 1 for axis, differing in enumerate(differs) if differing), 0)
        if not rank:
            return _elements.stack(parts)
        sizes = [None if differing else size for size, differing in zip(spec.shape, differs, strict=True)]
        return join_arrays(RaggedTensor, parts, rank, self.row_splits_dtype.as_numpy_dtype, sizes)

    def make_spec(self) -> Any:
        ragged = _elements.map_structure(self._ragged_spec, self.parent.make_spec())
        return _elements.batched_spec(ragged, self.rows_in_each())

    def _ragged_spec(self, spec: Any) -> Any:
        if not isinstance(spec, TensorSpec) or not _ragged_rank(spec):
            return spec
        return RaggedTensorSpec(spec.shape, spec.dtype, _ragged_rank(spec) - 1, self.row_splits_dtype)

    def cardinality(self) -> int:
        return batch_count(self.parent.cardinality(), self.batch_size, drop_remainder=self.drop_remainder)

    def rows_in_each(self) -> int | None:
        return self.batch_size if self.drop_remainder else None


def _ragged_rank(spec: TensorSpec) -> int:
    """Return how many axes of a tensor are split in batches: all up to the last one whose size is open."""
    if spec.shape.rank is None:
        raise ValueError(f"Ragged batches need tensors of known rank, got {spec}. Use `tf.ensure_shape` in a `map`.")
    return max((axis + 1 for axis, size in enumerate(spec.shape) if size is None), default=0)


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SparseBatch(Batches):
    """`batch_size` tensors at a time as a sparse tensor, each up to `row_shape`; where that is open, up to the largest."""

    parent: Plan
    batch_size: int
    row_shape: Sequence[int | None]

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        elements = self.parent.elements(seed_log)
        return map(self._join, _failures.groups(elements, self.batch_size, drop_remainder=False))

    def _join(self, group: list[Any]) -> SparseTensor:
        arrays = [np.asarray(array) for array in group]
        for array in arrays:
            self._check_shape(list(array.shape))
        inner = [np.indices(array.shape).reshape(array.ndim, array.size).T for array in arrays]
        indices = [np.insert(places, 0, number, axis=1) for number, places in enumerate(inner)]
        largest = np.max([array.shape for array in arrays], axis=0).tolist()
        sizes = [most if wanted is None else wanted for wanted, most in zip(self.row_shape, largest, strict=True)]
        values = np.concatenate([array.reshape(-1) for array in arrays])
        return SparseTensor(np.concatenate(indices), values, [len(arrays), *sizes])

    def _check_shape(self, sizes: list[int]) -> None:
        wanted = list(self.row_shape)
        if len(sizes) != len(wanted):
            raise invalid(f"Input element had shape ({sizes}) that is incompatible with the row shape ({wanted}).")
        if any(most is not None and size > most for size, most in zip(sizes, wanted, strict=True)):
            raise DataLossError(
                None, None, f"Input element had shape ({sizes}) that is larger than the row shape ({wanted})."
            )

    def make_spec(self) -> Any:
        return SparseTensorSpec(TensorShape([None, *self.row_shape]), self.parent.make_spec().dtype)

    def cardinality(self) -> int:
        return batch_count(self.parent.cardinality(), self.batch_size, drop_remainder=False)

    def rows_in_each(self) -> int | None:
        return None
