"""What is known about a tensor before it exists: `TensorShape` and `TensorSpec`."""

import dataclasses
import operator
from collections.abc import Iterator
from typing import Any, NoReturn, final

import jax
from jax.export import is_symbolic_dim

from tfdist_jax.compat.tensorflow._tensors import _dtypes


@final
class TensorShape(tuple[Any, ...]):
    """The sizes of a tensor's axes; None for a size that is not known.

    A tuple, so that it is accepted wherever one is.
    See https://www.tensorflow.org/api_docs/python/tf/TensorShape. Differences: `dims` and iteration give plain
    integers, and there are no protocol buffers.
    """

    _is_unknown = False

    def __new__(cls, dims: Any) -> "TensorShape":
        """Make a shape from sizes.

        Args:
            dims: Sizes, each an integer or None; one integer for one axis; None if not even the rank is known.

        Raises:
            TypeError: If `dims` holds something else.
            ValueError: If a size is negative.
        """
        if isinstance(dims, TensorShape):
            return dims
        if dims is None:
            shape = super().__new__(cls)
            shape._is_unknown = True
            return shape
        return super().__new__(cls, (_size(size, dims) for size in _sizes(dims)))

    @property
    def rank(self) -> int | None:
        """The number of axes, or None."""
        return None if self._is_unknown else tuple.__len__(self)

    @property
    def ndims(self) -> int | None:
        """The number of axes, or None."""
        return self.rank

    @property
    def dims(self) -> list[int | None] | None:
        """The sizes, or None if the rank is not known."""
        return None if self._is_unknown else self.as_list()

    def as_list(self) -> list[int | None]:
        """Return the sizes as a list."""
        if self._is_unknown:
            raise ValueError("as_list() is not defined on an unknown TensorShape.")
        return list(self)

    def num_elements(self) -> int | None:
        """Return the product of the sizes, or None if one is not known."""
        if not self.is_fully_defined():
            return None
        elements = 1
        for size in self:
            elements *= size
        return elements

    def is_fully_defined(self) -> bool:
        """Whether every size is known."""
        return not self._is_unknown and all(size is not None for size in self)

    def is_compatible_with(self, other: Any) -> bool:
        """Whether one tensor could have both shapes."""
        other = TensorShape(other)
        if self._is_unknown or other._is_unknown:
            return True
        same_rank = self.rank == other.rank
        return same_rank and all(a is None or b is None or a == b for a, b in zip(self, other, strict=True))

    def is_subtype_of(self, other: Any) -> bool:
        """Whether every tensor of this shape has the other shape too."""
        other = TensorShape(other)
        if other._is_unknown:
            return True
        return self.rank == other.rank and all(b is None or a == b for a, b in zip(self, other, strict=True))

    def merge_with(self, other: Any) -> "TensorShape":
        """Return what is known from both shapes together.

        Raises:
            ValueError: If no tensor can have both.
        """
        other = TensorShape(other)
        if self._is_unknown or other._is_unknown:
            return other if self._is_unknown else self
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {other} are not compatible")
        return TensorShape([b if a is None else a for a, b in zip(self, other, strict=True)])

    def most_specific_compatible_shape(self, other: Any) -> "TensorShape":
        """Return the shape that says what is true of both."""
        other = TensorShape(other)
        if self._is_unknown or other._is_unknown or self.rank != other.rank:
            return TensorShape(None)
        return TensorShape([a if a == b else None for a, b in zip(self, other, strict=True)])

    def concatenate(self, other: Any) -> "TensorShape":
        """Return the sizes of this shape followed by those of the other."""
        other = TensorShape(other)
        if self._is_unknown or other._is_unknown:
            return TensorShape(None)
        return TensorShape([*self, *other])

    def with_rank(self, rank: int) -> "TensorShape":
        """Return the shape with this rank; a ValueError if it has another."""
        if self._is_unknown:
            return TensorShape([None] * rank)
        self.assert_has_rank(rank)
        return self

    def with_rank_at_least(self, rank: int) -> "TensorShape":
        """Return the shape if it may have at least this rank; a ValueError if not."""
        if self.rank is not None and self.rank < rank:
            raise ValueError(f"Shape {self} must have rank at least {rank}")
        return self

    def assert_has_rank(self, rank: int) -> None:
        """Raise a ValueError if the rank is another."""
        if self.rank not in (None, rank):
            raise ValueError(f"Shape {self} must have rank {rank}")

    def assert_same_rank(self, other: Any) -> None:
        """Raise a ValueError if the ranks differ."""
        other = TensorShape(other)
        if None not in (self.rank, other.rank) and self.rank != other.rank:
            raise ValueError(f"Shapes {self} and {other} must have the same rank")

    def assert_is_compatible_with(self, other: Any) -> None:
        """Raise a ValueError if no tensor can have both shapes."""
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {TensorShape(other)} are incompatible")

    def assert_is_fully_defined(self) -> None:
        """Raise a ValueError if a size is not known."""
        if not self.is_fully_defined():
            raise ValueError(f"Shape {self} is not fully defined")

    def __getitem__(self, key: Any) -> Any:
        """Return a size, or for a slice a shape."""
        if self._is_unknown:
            return TensorShape(None) if isinstance(key, slice) else None
        item = super().__getitem__(key)
        return user_shape(item) if isinstance(key, slice) else item

    def __iter__(self) -> Iterator[Any]:
        """Go through the sizes."""
        return self._no_length() if self._is_unknown else super().__iter__()

    def __len__(self) -> int:
        """Return the number of axes."""
        return self._no_length() if self._is_unknown else super().__len__()

    def __bool__(self) -> bool:
        """Whether the rank is known: a scalar's shape is true, as in TensorFlow."""
        return not self._is_unknown

    def __add__(self, other: Any) -> "TensorShape":
        """Concatenate."""
        return self.concatenate(other)

    def __radd__(self, other: Any) -> "TensorShape":
        """Concatenate the other way round."""
        return TensorShape(other).concatenate(self)

    def __eq__(self, other: object) -> bool:
        """Whether the same is known of both; lists and tuples count as shapes."""
        try:
            shape = TensorShape(other)
        except (TypeError, ValueError):
            return False
        return self._is_unknown == shape._is_unknown and tuple.__eq__(self, shape)

    def __ne__(self, other: object) -> bool:
        """Whether something else is known of the other."""
        return not self == other

    def __hash__(self) -> int:
        """Hash as the equal tuple."""
        return tuple.__hash__(self)

    def __repr__(self) -> str:
        """Write it as TensorFlow does."""
        return f"TensorShape({None if self._is_unknown else list(self)})"

    def __str__(self) -> str:
        """Write it as a tuple."""
        return "<unknown>" if self._is_unknown else tuple.__repr__(self)

    def _no_length(self) -> NoReturn:
        raise ValueError("Cannot take the length of shape with unknown rank.")


def user_shape(shape: tuple[int, ...]) -> TensorShape:
    """Turn an array's own shape into a `TensorShape`, without checking it."""
    return tuple.__new__(TensorShape, shape)


# A tuple is a node of a pytree but a subclass would be a leaf, and no valid one: `strategy.run(fn, args=(x.shape,))`.
jax.tree_util.register_pytree_node(TensorShape, lambda shape: (tuple(shape), None), lambda _, sizes: user_shape(sizes))


def _sizes(dims: Any) -> Iterator[Any]:
    try:
        return iter(dims)
    except TypeError:
        return iter((dims,))


def _size(size: Any, dims: Any) -> Any:
    if size is None or is_symbolic_dim(size):
        return size
    try:
        number = operator.index(size)
    except TypeError:
        raise TypeError(
            f"Failed to convert {dims!r} to a shape: {size!r} is no dimension. A shape is one dimension (10) or a "
            "sequence of dimensions ([1, 10, None])."
        ) from None
    if number < 0:
        raise ValueError(f"Dimension {number} must be >= 0. Write None for a dimension that is not known.")
    return number


@final
@dataclasses.dataclass(frozen=True, repr=False)
class TensorSpec:
    """Describes tensors: their shape, type and name.

    See https://www.tensorflow.org/api_docs/python/tf/TensorSpec.

    Attributes:
        shape: The shape, with None for unknown sizes.
        dtype: The type of the elements.
        name: A name, or None.
    """

    shape: TensorShape
    dtype: _dtypes.DType = _dtypes.float32
    name: str | None = None

    def __post_init__(self) -> None:
        """Accept whatever names a shape and a type."""
        object.__setattr__(self, "shape", TensorShape(self.shape))
        object.__setattr__(self, "dtype", _dtypes.as_dtype(self.dtype))

    @classmethod
    def from_tensor(cls, tensor: Any, name: str | None = None) -> "TensorSpec":
        """Return the spec of a tensor."""
        return cls(tensor.shape, tensor.dtype, name)

    @classmethod
    def from_spec(cls, spec: "TensorSpec", name: str | None = None) -> "TensorSpec":
        """Return the same spec with another name, if one is given."""
        return cls(spec.shape, spec.dtype, name or spec.name)

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether the tensor, or any tensor of the other spec, fits this one."""
        same_type = self.dtype == spec_or_value.dtype
        return same_type and self.shape.is_compatible_with(spec_or_value.shape)

    def is_subtype_of(self, other: "TensorSpec") -> bool:
        """Whether every tensor of this spec fits the other."""
        return self.dtype == other.dtype and self.shape.is_subtype_of(other.shape)

    def __repr__(self) -> str:
        """Write it as TensorFlow does."""
        return f"TensorSpec(shape={self.shape}, dtype={self.dtype!r}, name={self.name!r})"
