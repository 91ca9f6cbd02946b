"""Ragged tensors from and to tensors that are filled up, and sparse ones."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid, value_of
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype, int64
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.ragged._base import Ragged, ragged_axis
from tfdist_jax.compat.tensorflow.ragged._row_partition import NOT_TRACED, RowPartition, integers
from tfdist_jax.compat.tensorflow.ragged._rows import known_values, merge_axes, places, take, uniform_partitions


class FromOthers(Ragged):
    """Ragged tensors of tensors, and the opposite."""

    @classmethod
    def from_tensor(
        cls,
        tensor: Any,
        lengths: Any = None,
        padding: Any = None,
        ragged_rank: int = 1,
        name: str | None = None,
        row_splits_dtype: Any = int64,
    ) -> Any:
        """Return the rows of a tensor, without what fills them up.

        Args:
            tensor: Two axes or more.
            lengths: How many entries of each row to keep, `[rows]`; of several levels, a list of lengths for each.
            padding: The value that fills rows up at their end. Give this, or `lengths`, or none to keep all.
            ragged_rank: How many axes to split at.
            name: Unused.
            row_splits_dtype: int32 or int64.

        Raises:
            ValueError: If `tensor` has only one axis, or both `lengths` and `padding` are given.
        """
        if lengths is not None and padding is not None:
            raise ValueError("Specify argument `lengths` or `padding`, but not both.")
        given = convert_to_tensor(tensor)
        if np.ndim(given) < 2:
            raise ValueError(
                "The rank of a RaggedTensor must be greater than 1, i.e., a list of scalars won't have ragged dimensions. "
                f"Received argument `tensor` with rank {np.ndim(given)}."
            )
        if not 0 < ragged_rank < np.ndim(given):
            raise ValueError(f"ragged_rank must be greater than 0 and less than {np.ndim(given)}, got {ragged_rank}.")
        dtype = as_dtype(row_splits_dtype).as_numpy_dtype
        if isinstance(lengths, list | tuple) and _are_levels(lengths):
            return cls._of_nested_lengths(given, list(lengths), dtype)
        sizes = np.shape(given)
        partitions = uniform_partitions(sizes[: ragged_rank + 1], dtype)
        flat = merge_axes(given, ragged_rank + 1)
        if lengths is None and padding is None:
            return cls.of(flat, partitions)
        rows, width = int(np.prod(sizes[:ragged_rank])), sizes[ragged_rank]
        if lengths is None:
            kept = _lengths_without(given.reshape(rows, width, *sizes[ragged_rank + 1 :]), padding)
        else:
            kept = np.clip(integers(lengths, "lengths"), 0, width)
        if len(kept) != rows:
            raise ValueError(
                f"Shapes ({len(kept)},) and ({rows},) are incompatible: `lengths` has one number for each row."
            )
        index = np.flatnonzero(np.arange(width) < kept[:, None])
        return cls.of(take(flat, index), (*partitions[:-1], RowPartition.of_lengths(kept, dtype)))

    @classmethod
    def _of_nested_lengths(cls, tensor: Any, levels: list[Any], dtype: Any) -> Any:
        outer = cls.from_tensor(tensor, levels[0], row_splits_dtype=dtype)
        if len(levels) == 1:
            return outer
        return outer.with_values(cls._of_nested_lengths(outer.values, levels[1:], dtype))

    @classmethod
    def from_sparse(cls, st_input: Any, name: str | None = None, row_splits_dtype: Any = int64) -> Any:
        """Return the rows of a sparse matrix whose elements are at the beginning of each row.

        Raises:
            TypeError: If it is no sparse tensor.
            ValueError: If it has not two axes.
            InvalidArgumentError: If there are gaps in rows.
        """
        if not isinstance(st_input, SparseTensor):
            raise TypeError(
                f"Argument `st_input` must be of type SparseTensor, but is of type {type(st_input).__name__}."
            )
        if len(st_input.shape) != 2:
            raise ValueError(f"Argument `st_input` must have rank 2, got {len(st_input.shape)}.")
        dtype = as_dtype(row_splits_dtype).as_numpy_dtype
        rows, columns = np.asarray(value_of(st_input.indices, NOT_TRACED)).T
        partition = RowPartition.of_lengths(np.bincount(rows, minlength=int(st_input.shape[0])), dtype)
        if not (np.array_equal(partition.rowids, rows) and np.array_equal(partition.columns, columns)):
            raise invalid(
                "SparseTensor is not right-ragged: its elements must be in order, and each row's at the beginning. "
                f"SparseTensor.indices = {st_input.indices.tolist()}"
            )
        return cls.of(st_input.values, (partition,))

    def to_tensor(self, default_value: Any = None, name: str | None = None, shape: Any = None) -> Any:
        """Return the rows as a tensor, filled up with `default_value` (zero) to the longest, or to `shape`.

        Raises:
            InvalidArgumentError: If `shape` does not fit.
            TypeError: If `default_value` has another type.
        """
        sizes = self._sizes_to_fill(shape)
        filling = _filling(self, default_value)
        index = np.arange(sizes[0])
        index[self.outer.nrows :] = -1
        for partition, size in zip(self.partitions, sizes[1:], strict=False):
            index = _index_of_level(partition, index, size)
        return _filled(self.flat_values, filling, index).reshape(sizes)

    def _sizes_to_fill(self, shape: Any) -> list[int]:
        sizes = list(self.bounding_sizes())
        if shape is None:
            return sizes
        wanted = TensorShape(shape)
        if wanted.rank is None:
            return sizes
        if wanted.rank != self.rank:
            raise invalid(
                f"rt_input.shape and shape={wanted} are incompatible: rt_input.rank = {self.rank} but shape.rank = {wanted.rank}"
            )
        for axis, size in enumerate(wanted.as_list()):
            if axis > self.ragged_rank and size not in (None, sizes[axis]):
                raise invalid(
                    f"rt_input.shape and shape={wanted} are incompatible: rt_input.shape[{axis}] = {sizes[axis]} but "
                    f"shape[{axis}] = {size}"
                )
            sizes[axis] = sizes[axis] if size is None else size
        return sizes

    def to_sparse(self, name: str | None = None) -> SparseTensor:
        """Return the values and their places as a sparse tensor."""
        at, sizes = places(self.partitions), self.inner_sizes
        if sizes:
            inner = np.indices(sizes).reshape(len(sizes), -1).T
            at = np.concatenate([np.repeat(at, len(inner), 0), np.tile(inner, (len(at), 1))], 1)
        return SparseTensor(at.astype(np.int64), self.flat_values.reshape(-1), self.bounding_sizes())

    def merge_dims(self, outer_axis: Any, inner_axis: Any) -> Any:
        """Return the ragged tensor with axes from an outer to an inner one made one.

        Raises:
            ValueError: If the first is not the outer one.
        """
        outer = ragged_axis(outer_axis, self.rank, "outer_axis")
        inner = ragged_axis(inner_axis, self.rank, "inner_axis")
        if outer > inner:
            raise ValueError(f"Expected outer_axis ({outer}) to be less than or equal to inner_axis ({inner}).")
        if outer == inner:
            return self
        flat, levels = self.flat_values, list(self.partitions)
        if inner > self.ragged_rank:
            levels += uniform_partitions(np.shape(flat)[: inner - self.ragged_rank + 1], self.outer.dtype)
            flat = merge_axes(flat, inner - self.ragged_rank + 1)
        if outer == 0:
            return self.of(flat, levels[inner:])
        merged = levels[outer - 1]
        for level in levels[outer:inner]:
            merged = _joined(merged, level)
        return self.of(flat, [*levels[: outer - 1], merged, *levels[inner:]])


def _joined(outer: RowPartition, inner: RowPartition) -> RowPartition:
    uniform = None
    if outer.uniform_length is not None and inner.uniform_length is not None:
        uniform = outer.uniform_length * inner.uniform_length
    return RowPartition(inner.splits[outer.splits], uniform)


def _are_levels(lengths: Sequence[Any]) -> bool:
    return bool(len(lengths)) and all(np.ndim(level) == 1 for level in lengths)


def _lengths_without(tensor: Any, padding: Any) -> np.ndarray:
    """Return the length of each row without the padding at its end."""
    known = np.asarray(value_of(tensor, NOT_TRACED))
    default = np.asarray(convert_to_tensor(padding, as_dtype(tensor.dtype)))
    if default.shape != known.shape[2:]:
        raise ValueError(
            f"Shapes {default.shape} and {known.shape[2:]} are incompatible: `padding` is one entry of a row."
        )
    is_value = (known != default).astype(bool).any(tuple(range(2, known.ndim)))
    return np.where(is_value, np.arange(1, known.shape[1] + 1), 0).max(1, initial=0)


def _filling(ragged: Ragged, default_value: Any) -> Any:
    dtype, sizes = ragged.dtype, ragged.inner_sizes
    if default_value is None:
        default_value = b"" if dtype.name == "string" else np.zeros((), dtype.as_numpy_dtype)
    default = convert_to_tensor(default_value, dtype)
    try:
        np.broadcast_shapes(np.shape(default), sizes)
    except ValueError:
        raise invalid(
            f"default_value of shape {np.shape(default)} does not broadcast to the values' {sizes}."
        ) from None
    return default


def _index_of_level(partition: RowPartition, rows: np.ndarray, size: int) -> np.ndarray:
    """Return the numbers of the values that stand in `size` places of each row; -1 where there is none."""
    is_row = rows >= 0
    starts = partition.starts[rows] if partition.nrows else np.zeros_like(rows)
    lengths = np.where(is_row, partition.lengths[rows] if partition.nrows else 0, 0)
    column = np.arange(size)
    return np.where(column < lengths[:, None], starts[:, None] + column, -1).reshape(-1)


def _filled(values: Any, default: Any, index: np.ndarray) -> Any:
    known, filling = known_values(values), known_values(default)
    if known is not None and filling is not None:
        whole = np.empty((len(index), *known.shape[1:]), known.dtype)
        whole[...] = filling
        there = index >= 0
        whole[there] = known[index[there]]
        return HostTensor.of(whole) if isinstance(values, HostTensor) else convert_to_tensor(whole)
    sizes: Sequence[int] = values.shape[1:]
    row = jnp.broadcast_to(default, sizes)[None].astype(values.dtype)
    return take(jnp.concatenate([values, row]), np.where(index < 0, values.shape[0], index))
