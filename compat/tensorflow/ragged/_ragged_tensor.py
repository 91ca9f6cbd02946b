"""`tf.RaggedTensor`: rows of different lengths."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, final

import jax
import numpy as np

from tfdist_jax.compat.tensorflow._names._symbolic import override_with
from tfdist_jax.compat.tensorflow._ops import _binary, _elementwise
from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError
from tfdist_jax.compat.tensorflow._tensors import _conversions
from tfdist_jax.compat.tensorflow._tensors._dtypes import DType, as_dtype, float32, int64
from tfdist_jax.compat.tensorflow._tensors._host_part import TRACERS
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, TensorSpec
from tfdist_jax.compat.tensorflow._tensors._type_spec import TypeSpec
from tfdist_jax.compat.tensorflow.ragged._batches import join_arrays, join_ragged
from tfdist_jax.compat.tensorflow.ragged._broadcasting import elementwise
from tfdist_jax.compat.tensorflow.ragged._factories import Factories
from tfdist_jax.compat.tensorflow.ragged._ragged_tracer import RaggedTracer
from tfdist_jax.compat.tensorflow.ragged._row_partition import RowPartition
from tfdist_jax.compat.tensorflow.ragged._rows import slice_rows
from tfdist_jax.compat.tensorflow.ragged._slicing import get_part


def _operator(function: Callable[..., Any], *, is_reflected: bool = False) -> Callable[..., Any]:
    if is_reflected:
        return lambda self, other: elementwise(function, [other, self])
    return lambda self, other: elementwise(function, [self, other])


@final
@jax.tree_util.register_pytree_node_class
class RaggedTensor(Factories):
    """Drop-in for `tf.RaggedTensor`: rows of different lengths, on the host.

    Ref: https://www.tensorflow.org/api_docs/python/tf/RaggedTensor. Differences: how rows are split is known on the host; a
    `tf.function` that gets or makes a ragged tensor of its arguments' values runs as Python, and XLA compiles none.
    """

    # Operators of NumPy's arrays and of tensors leave theirs to this class.
    __array_ufunc__ = None
    has_operators = True

    def __init__(self, values: Any, row_partition: Any) -> None:
        """Refuse: there are methods that make ragged tensors.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            "RaggedTensor constructor is private; please use one of the factory methods instead (e.g., "
            "RaggedTensor.from_row_lengths())"
        )

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        """Refuse to become an array of NumPy's."""
        _refuse_conversion(self)

    def __jax_array__(self) -> NoReturn:
        """Refuse to become an array of JAX's, as Keras asks for."""
        _refuse_conversion(self)

    def __getitem__(self, key: Any) -> Any:
        """Return a row, or a part by integers, slices, `...` and `tf.newaxis` for several axes."""
        return get_part(self, key)

    def __iter__(self) -> Iterator[Any]:
        """Go through the rows."""
        return (self[i] for i in range(self.outer.nrows))

    @classmethod
    def joined(cls, parts: Sequence[Any]) -> Any:
        """Return the ragged tensor whose rows are others."""
        return join_ragged(cls, parts)

    def entries(self) -> list[Any]:
        """Return the rows, as datasets have them: ragged tensors, or arrays that are batched to one."""
        splits = self.outer.splits.tolist()
        if self.ragged_rank == 1:
            flat = np.asarray(self.flat_values)
            return [RaggedRow.of(flat[start:stop], self.outer.dtype) for start, stop in itertools.pairwise(splits)]
        inner = (self.flat_values, self.partitions[1:])
        return [self.of(*slice_rows(*inner, start, stop)) for start, stop in itertools.pairwise(splits)]

    @property
    def _type_spec(self) -> "RaggedTensorSpec":
        return RaggedTensorSpec.from_value(self)

    __add__, __radd__ = _operator(_binary.add), _operator(_binary.add, is_reflected=True)
    __sub__, __rsub__ = _operator(_binary.subtract), _operator(_binary.subtract, is_reflected=True)
    __mul__, __rmul__ = _operator(_binary.multiply), _operator(_binary.multiply, is_reflected=True)
    __truediv__, __rtruediv__ = _operator(_binary.truediv), _operator(_binary.truediv, is_reflected=True)
    __floordiv__, __rfloordiv__ = _operator(_binary.floordiv), _operator(_binary.floordiv, is_reflected=True)
    __mod__, __rmod__ = _operator(_binary.floormod), _operator(_binary.floormod, is_reflected=True)
    __pow__, __rpow__ = _operator(_binary.pow), _operator(_binary.pow, is_reflected=True)
    __and__, __rand__ = _operator(_binary.logical_and), _operator(_binary.logical_and, is_reflected=True)
    __or__, __ror__ = _operator(_binary.logical_or), _operator(_binary.logical_or, is_reflected=True)
    __xor__, __rxor__ = _operator(_binary.logical_xor), _operator(_binary.logical_xor, is_reflected=True)
    __lt__, __le__ = _operator(_binary.less), _operator(_binary.less_equal)
    __gt__, __ge__ = _operator(_binary.greater), _operator(_binary.greater_equal)

    def __neg__(self) -> Any:
        """Return the negated values."""
        return elementwise(_elementwise.negative, [self])

    def __abs__(self) -> Any:
        """Return the absolute values."""
        return elementwise(_elementwise.abs, [self])

    def __invert__(self) -> Any:
        """Return the opposite truth values."""
        return elementwise(_elementwise.logical_not, [self])

    def __eq__(self, other: object) -> Any:
        """Tell which values are equal; False for what has other rows."""
        return self._compare(other, _binary.equal, is_other=False)

    def __ne__(self, other: object) -> Any:
        """Tell which values differ; True for what has other rows."""
        return self._compare(other, _binary.not_equal, is_other=True)

    def _compare(self, other: Any, compare: Callable[..., Any], *, is_other: bool) -> Any:
        if other is None:
            return is_other
        try:
            return elementwise(compare, [self, other])
        except InvalidArgumentError:
            return is_other

    __hash__ = Factories.__hash__


@final
class RaggedRow(np.ndarray):
    """A row of a ragged matrix as an element of a dataset: an array whose batches are ragged."""

    splits_dtype: Any = np.int64

    @classmethod
    def of(cls, array: Any, dtype: Any) -> "RaggedRow":
        """Return an array as a row; `dtype` is the type of the splits of batches."""
        row = np.asarray(array).view(cls)
        row.splits_dtype = dtype
        return row

    @property
    def _type_spec(self) -> "RaggedTensorSpec":
        name = "string" if self.dtype.kind == "O" else self.dtype
        return RaggedTensorSpec(self.shape, as_dtype(name), 0, as_dtype(self.splits_dtype))

    @classmethod
    def joined(cls, parts: Sequence[Any]) -> Any:
        """Return the ragged tensor of rows."""
        return join_arrays(RaggedTensor, parts, 1, parts[0].splits_dtype, ())


def _refuse_conversion(value: RaggedTensor, **_: Any) -> NoReturn:
    raise ValueError(
        f"A RaggedTensor (shape {value.shape}) is no tensor: its rows differ in length. Use `to_tensor()`, which fills them up, "
        "or `flat_values`; functions that take ragged tensors are listed at https://www.tensorflow.org/api_docs/python/tf/ragged."
    )


_conversions.register_tensor_conversion_function(RaggedTensor, _refuse_conversion, priority=0)


@final
@dataclasses.dataclass(frozen=True, repr=False)
class RaggedTensorSpec:
    """Describes ragged tensors: their shape, the type of the values, how often they are split, and the type of the splits.

    Ref: https://www.tensorflow.org/api_docs/python/tf/RaggedTensorSpec. Difference: `flat_values_spec` is always None.
    """

    shape: Any = None
    dtype: DType = float32
    ragged_rank: Any = None
    row_splits_dtype: DType = int64
    flat_values_spec: Any = None

    def __post_init__(self) -> None:
        """Accept whatever names a shape and types."""
        shape, splits = TensorShape(self.shape), as_dtype(self.row_splits_dtype)
        if self.flat_values_spec is not None:
            raise NotImplementedError(
                "RaggedTensorSpec takes no `flat_values_spec`: flat values are tensors. Leave it out."
            )
        rank = self.ragged_rank
        if rank is None:
            if shape.rank is None:
                raise ValueError("Must specify ragged_rank or a shape with a known rank.")
            rank = shape.rank - 1
        elif not isinstance(rank, int):
            raise TypeError(f"Argument `ragged_rank` must be an int. Received {rank}.")
        if shape.rank is not None and rank >= shape.rank:
            raise ValueError(f"Argument `ragged_rank` ({rank}) must be less than rank ({shape.rank}).")
        if splits.name not in ("int32", "int64"):
            raise ValueError(f"Argument `row_splits_dtype` must be int32 or int64, got {splits.name}.")
        values = {"shape": shape, "dtype": as_dtype(self.dtype), "ragged_rank": rank, "row_splits_dtype": splits}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def value_type(self) -> type:
        """The class of what it describes: ragged tensors, or tensors if they are never split."""
        return RaggedTensor if self.ragged_rank else TensorSpec

    @classmethod
    def from_value(cls, value: "RaggedTensor") -> "RaggedTensorSpec":
        """Return the spec of a ragged tensor."""
        return cls(value.shape, value.dtype, value.ragged_rank, as_dtype(value.outer.dtype))

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether a ragged tensor, or any of another spec, fits this one."""
        if isinstance(spec_or_value, RaggedTensor):
            spec_or_value = RaggedTensorSpec.from_value(spec_or_value)
        if not isinstance(spec_or_value, RaggedTensorSpec):
            return False
        mine, its = ((s.dtype, s.ragged_rank, s.row_splits_dtype) for s in (self, spec_or_value))
        return mine == its and self.shape.is_compatible_with(spec_or_value.shape)

    def batched(self, size: int | None) -> "RaggedTensorSpec":
        """Return the spec of batches: split once more."""
        shape = TensorShape([size]).concatenate(self.shape)
        return dataclasses.replace(self, shape=shape, ragged_rank=self.ragged_rank + 1)

    def unbatched(self) -> "RaggedTensorSpec":
        """Return the spec of the entries along the first axis."""
        return dataclasses.replace(self, shape=self.shape[1:], ragged_rank=max(self.ragged_rank - 1, 0))

    def with_shape(self, shape: TensorShape) -> "RaggedTensorSpec":
        """Return the spec of another shape."""
        return dataclasses.replace(self, shape=shape)

    def fitted(self, value: RaggedTensor) -> RaggedTensor:
        """Return a ragged tensor with the rows of one length that this shape has."""
        sizes = zip(value.partitions, self.shape[1:], strict=False)
        return value.of(value.flat_values, [RowPartition(partition.splits, size) for partition, size in sizes])

    def as_row(self, array: np.ndarray) -> np.ndarray:
        """Return an array as an element of a dataset of this spec, which splits nothing: its batches are ragged."""
        return RaggedRow.of(array, self.row_splits_dtype.as_numpy_dtype)

    def example(self) -> Any:
        """Return a ragged tensor of zeros, with one entry along each axis whose size is open."""
        sizes = [1 if size is None else size for size in self.shape]
        kind = object if self.dtype.name == "string" else self.dtype.as_numpy_dtype
        zeros = np.full(sizes, b"" if kind is object else 0, kind)
        return RaggedTensor.from_tensor(zeros, ragged_rank=self.ragged_rank) if self.ragged_rank else self.as_row(zeros)

    def __repr__(self) -> str:
        """Write it as TensorFlow does."""
        return f"RaggedTensorSpec({self.shape!r}, {self.dtype!r}, {self.ragged_rank}, {self.row_splits_dtype!r})"


TypeSpec.register(RaggedTensorSpec)
override_with(RaggedTensorSpec, "ragged._dispatch")
# Programs take for a ragged tensor what stands for one; this package does not, since it has no rows.
TRACERS[RaggedTensor] = RaggedTracer
RaggedTensor.register(RaggedTracer)
