"""What a ragged tensor is made of: flat values, and how they are split into rows at each level."""

import abc
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from jax.core import Tracer

from tfdist_jax.compat.tensorflow._names._symbolic import override_with
from tfdist_jax.compat.tensorflow._ops._arguments import static_int, static_ints
from tfdist_jax.compat.tensorflow._tensors._composite import Composite
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, user_shape
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.ragged import _text
from tfdist_jax.compat.tensorflow.ragged._row_partition import RowPartition, integers
from tfdist_jax.compat.tensorflow.ragged._rows import Partitions


class Ragged(Composite):
    """Flat values, an ordinary tensor, and the partitions of them into rows, the outermost first."""

    _flat_values: Any
    _partitions: Partitions

    @classmethod
    def of(cls, flat_values: Any, partitions: Sequence[RowPartition]) -> Any:
        """Return the ragged tensor of parts that are known to fit; without partitions the values themselves."""
        if not partitions:
            return flat_values
        self = object.__new__(cls)
        self._flat_values, self._partitions = flat_values, tuple(partitions)
        return self

    @property
    def partitions(self) -> Partitions:
        """How rows are split, the outermost first."""
        return self._partitions

    @property
    def flat_values(self) -> Any:
        """The innermost values, without any rows: a tensor."""
        return self._flat_values

    @property
    def values(self) -> Any:
        """The concatenated rows: a tensor, or a ragged one if rows are ragged themselves."""
        return self.of(self._flat_values, self._partitions[1:])

    @property
    def outer(self) -> RowPartition:
        """The partition into the rows of the first axis."""
        return self._partitions[0]

    @property
    def row_splits(self) -> HostTensor:
        """Where the rows are split, `[nrows + 1]`."""
        return HostTensor.of(self.outer.splits)

    @property
    def uniform_row_length(self) -> Any:
        """The length that all rows have to have, a scalar; None where they may differ."""
        length = self.outer.uniform_length
        return None if length is None else HostTensor.of(np.asarray(length, self.outer.dtype))

    @property
    def ragged_rank(self) -> int:
        """How many times the values are split into rows."""
        return len(self._partitions)

    @property
    def dtype(self) -> Any:
        """The type of the values."""
        return as_dtype(self._flat_values.dtype)

    @property
    def inner_sizes(self) -> tuple[int, ...]:
        """The sizes of each flat value."""
        return tuple(np.shape(self._flat_values)[1:])

    @property
    def shape(self) -> TensorShape:
        """The sizes; None for those that differ from row to row."""
        ragged = (partition.uniform_length for partition in self._partitions)
        return user_shape(cast(Any, (self.outer.nrows, *ragged, *self.inner_sizes)))

    @property
    def rank(self) -> int:
        """How many axes there are."""
        return len(self._partitions) + np.ndim(self._flat_values)

    def get_shape(self) -> TensorShape:
        """Return the sizes; None for those that differ from row to row."""
        return self.shape

    def nrows(self, out_type: Any = None, name: str | None = None) -> HostTensor:
        """Return how many rows there are, a scalar."""
        return HostTensor.of(np.asarray(self.outer.nrows, self._index_type(out_type)))

    def _index_type(self, out_type: Any = None) -> Any:
        return self.outer.dtype if out_type is None else as_dtype(out_type).as_numpy_dtype

    def row_starts(self, name: str | None = None) -> HostTensor:
        """Return where each row begins in `values`, `[nrows]`."""
        return HostTensor.of(self.outer.splits[:-1])

    def row_limits(self, name: str | None = None) -> HostTensor:
        """Return where each row ends in `values`, `[nrows]`."""
        return HostTensor.of(self.outer.splits[1:])

    def value_rowids(self, name: str | None = None) -> HostTensor:
        """Return the row of each of the `values`."""
        return HostTensor.of(self.outer.rowids)

    def row_lengths(self, axis: Any = 1, name: str | None = None) -> Any:
        """Return the lengths of rows along an axis: ragged for inner ones.

        Raises:
            ValueError: If there is no such axis.
        """
        where = ragged_axis(axis, self.rank)
        if where == 0:
            return self.nrows()
        if where <= self.ragged_rank:
            lengths = HostTensor.of(self._partitions[where - 1].lengths)
            return self.of(lengths, self._partitions[: where - 1])
        size = self.inner_sizes[where - self.ragged_rank - 1]
        flat = np.shape(self._flat_values)[: where - self.ragged_rank]
        return self.of(HostTensor.of(np.full(flat, size, self.outer.dtype)), self._partitions)

    @property
    def nested_row_splits(self) -> tuple[HostTensor, ...]:
        """The splits at each level, the outermost first."""
        return tuple(HostTensor.of(partition.splits) for partition in self._partitions)

    def nested_row_lengths(self, name: str | None = None) -> tuple[HostTensor, ...]:
        """Return the lengths of the rows at each level, the outermost first."""
        return tuple(HostTensor.of(partition.lengths) for partition in self._partitions)

    def nested_value_rowids(self, name: str | None = None) -> tuple[HostTensor, ...]:
        """Return the rows of the values at each level, the outermost first."""
        return tuple(HostTensor.of(partition.rowids) for partition in self._partitions)

    def bounding_shape(self, axis: Any = None, name: str | None = None, out_type: Any = None) -> HostTensor:
        """Return the sizes of the smallest tensor that holds all rows, `[rank]`; or those along `axis`."""
        sizes = np.asarray(self.bounding_sizes(), self._index_type(out_type))
        if axis is None:
            return HostTensor.of(sizes)
        wanted = [ragged_axis(one, self.rank) for one in static_ints(axis, "axis")]
        return HostTensor.of(sizes[wanted] if np.ndim(axis) else sizes[wanted[0]])

    def bounding_sizes(self) -> tuple[int, ...]:
        """Return the sizes of the smallest tensor that holds all rows."""
        longest = (int(partition.lengths.max(initial=0)) for partition in self._partitions)
        return (self.outer.nrows, *longest, *self.inner_sizes)

    def with_values(self, new_values: Any) -> Any:
        """Return a ragged tensor of the same rows with other values.

        Raises:
            ValueError: If they are more or fewer.
        """
        return self._with(new_values, self._partitions[:1])

    def with_flat_values(self, new_values: Any) -> Any:
        """Return a ragged tensor of the same rows with other innermost values.

        Raises:
            ValueError: If they are more or fewer.
        """
        return self._with(new_values, self._partitions)

    def _with(self, values: Any, partitions: Partitions) -> Any:
        given = values if isinstance(values, Ragged) else convert_to_tensor(values)
        wanted, count = (
            partitions[-1].nvals,
            given.outer.nrows if isinstance(given, Ragged) else (*np.shape(given), None)[0],
        )
        if count != wanted:
            raise ValueError(f"Shapes ({wanted},) and ({count},) are incompatible: rows have so many values.")
        if isinstance(given, Ragged):
            return self.of(given.flat_values, (*partitions, *given.partitions))
        return self.of(given, partitions)

    def with_row_splits_dtype(self, dtype: Any) -> Any:
        """Return the same rows, with splits of type int32 or int64.

        Raises:
            ValueError: If `dtype` is another one.
        """
        wanted = as_dtype(dtype)
        if wanted.name not in ("int32", "int64"):
            raise ValueError(f"Argument `row_splits` dtype must be int32 or int64. Received {wanted.name}.")
        splits = [partition.as_type(wanted.as_numpy_dtype) for partition in self._partitions]
        return self.of(self._flat_values, splits)

    def parts(self) -> list[Any]:
        """Return its tensors: the flat values, and the splits of each level."""
        return [self._flat_values, *self.nested_row_splits]

    def with_parts(self, parts: Sequence[Any]) -> Any:
        """Return the ragged tensor of other flat values and splits."""
        values, *splits = parts
        return self.of(values, [RowPartition(integers(one, "row_splits")) for one in splits])

    def consumers(self) -> list[Any]:
        """Return the operations that use it: they are not recorded."""
        return []

    def numpy(self) -> np.ndarray:
        """Return the rows as an array of arrays; those of one length as an array of more axes."""
        return _text.nested_array(np.asarray(self._flat_values), self._partitions)

    def to_list(self) -> list[Any]:
        """Return the rows as nested lists."""
        return _text.nested_list(np.asarray(self._flat_values), self._partitions)

    def tree_flatten(self) -> tuple[Any, Any]:
        """Hand the parts to JAX: partitions are no arrays, so that no program is made for each of them."""
        return (self._flat_values, *self._partitions), None

    @classmethod
    def tree_unflatten(cls, _: Any, children: Any) -> Any:
        """Make it again of the parts."""
        self = object.__new__(cls)
        self._flat_values, *partitions = children
        self._partitions = tuple(partitions)
        return self

    def printed(self, summarize: int) -> str:
        """Return what `tf.print` shows: so many entries at each end of an axis."""
        if isinstance(self._flat_values, Tracer):
            return repr(self)
        return _text.summary(np.asarray(self._flat_values), self._partitions, summarize)

    @abc.abstractmethod
    def __getitem__(self, key: Any) -> Any:
        """Return a part."""

    def __bool__(self) -> bool:
        """Refuse to be a truth value."""
        raise TypeError("RaggedTensor may not be used as a boolean.")

    def __hash__(self) -> int:
        """Refuse to be a key."""
        raise TypeError("RaggedTensor is unhashable.")

    def __repr__(self) -> str:
        """Write it as TensorFlow does."""
        if isinstance(self._flat_values, Tracer):
            return f"tf.RaggedTensor(values={self.values}, row_splits={self.row_splits})"
        return f"<tf.RaggedTensor {_text.array_text(self.numpy())}>"


override_with(Ragged, "ragged._dispatch")


def ragged_axis(axis: Any, rank: int, name: str = "axis") -> int:
    """Return an axis counted from the first.

    Raises:
        ValueError: If a ragged tensor of `rank` axes has it neither from the first nor from the last.
    """
    number = static_int(axis, name)
    if not -rank <= number < rank:
        raise ValueError(f"{name}={number} out of bounds: expected {-rank}<={name}<{rank}")
    return number % rank


def with_outer(like: Ragged | type[Ragged], partition: RowPartition, values: Any) -> Any:
    """Return the ragged tensor whose rows a partition splits; `like` gives the class."""
    if isinstance(values, Ragged):
        return like.of(values.flat_values, (partition, *values.partitions))
    return like.of(values, (partition,))
