"""`tf.SparseTensor`: some elements of a tensor, whose others are zero."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._composite import Composite
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, TensorSpec, user_shape
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, is_tensor as is_plain_tensor
from tfdist_jax.compat.tensorflow._tensors._tensor_text import tensor_str


@final
@jax.tree_util.register_pytree_node_class
class SparseTensor(Composite):
    """Drop-in for `tf.SparseTensor`: element `indices[i]` is `values[i]`, all others are zero.

    Ref: https://www.tensorflow.org/api_docs/python/tf/sparse/SparseTensor. Difference: `dense_shape` must be known while
    a function is traced.
    """

    def __init__(self, indices: Any, values: Any, dense_shape: Any) -> None:
        """Hold `indices`, `[n, rank]` int64, `values`, `[n]`, and `dense_shape`, `[rank]`.

        Raises:
            ValueError: If they do not fit together.
        """
        self._indices = convert_to_tensor(indices, _dtypes.int64)
        self._values = convert_to_tensor(values)
        if isinstance(dense_shape, Tracer):
            raise NotImplementedError(
                "The `dense_shape` of tf.SparseTensor must be known while a function is traced: XLA's sizes are fixed."
            )
        self._sizes = tuple(int(n) for n in np.asarray(dense_shape).reshape(-1))
        if not np.size(self._indices) and np.ndim(self._indices) < 2:
            self._indices = self._indices.reshape(0, len(self._sizes))
        if np.ndim(self._values) != 1 or np.shape(self._indices) != (*np.shape(self._values), len(self._sizes)):
            raise ValueError(
                "tf.SparseTensor needs indices [n, rank], values [n] and dense_shape [rank]. Received: shapes "
                f"{np.shape(self._indices)}, {np.shape(self._values)} and dense_shape {self._sizes}"
            )

    @classmethod
    def from_value(cls, sparse_tensor_value: Any) -> Self:
        """Return what has `indices`, `values` and `dense_shape` as a sparse tensor."""
        return cls(sparse_tensor_value.indices, sparse_tensor_value.values, sparse_tensor_value.dense_shape)

    @classmethod
    def _of(cls, indices: Any, values: Any, sizes: Any) -> Self:
        """Return a sparse tensor of parts that are known to fit."""
        self = object.__new__(cls)
        self._indices, self._values, self._sizes = indices, values, tuple(sizes)
        return self

    @property
    def indices(self) -> jax.Array:
        """The places of the elements, `[n, rank]` int64."""
        return self._indices

    @property
    def values(self) -> Any:
        """The elements, `[n]`."""
        return self._values

    @property
    def dense_shape(self) -> HostTensor:
        """The shape of the whole tensor, `[rank]` int64."""
        return HostTensor.of(np.asarray(self._sizes, np.int64))

    @property
    def shape(self) -> TensorShape:
        """The shape of the whole tensor."""
        return user_shape(self._sizes)

    @property
    def dtype(self) -> Any:
        """The type of the elements."""
        return as_dtype(self._values.dtype)

    def get_shape(self) -> TensorShape:
        """Return the shape of the whole tensor."""
        return self.shape

    def set_shape(self, shape: Any) -> None:
        """Check that the tensor has a shape."""
        if not TensorShape(shape).is_compatible_with(self._sizes):
            raise ValueError(f"Shape {self._sizes} is not compatible with {TensorShape(shape)}.")

    def with_values(self, new_values: Any) -> Self:
        """Return a sparse tensor of the same places with other elements."""
        values = convert_to_tensor(new_values)
        if np.shape(values) != np.shape(self._values):
            raise ValueError(f"`with_values` needs {np.shape(self._values)} values, got {np.shape(values)}.")
        return self._of(self._indices, values, self._sizes)

    def parts(self) -> list[Any]:
        """Return its three tensors."""
        return [self.indices, self.values, self.dense_shape]

    def with_parts(self, parts: Sequence[Any]) -> Self:
        """Return the sparse tensor of three other tensors."""
        return type(self)(*parts)

    @classmethod
    def joined(cls, parts: Sequence[Any]) -> Self:
        """Return the sparse tensor of sparse ones of one shape, with a first axis for them."""
        shapes = {tuple(part.shape) for part in parts}
        if len(shapes) > 1:
            message = f"Cannot batch sparse tensors of different shapes: {sorted(shapes)}."
            raise InvalidArgumentError(None, None, message)
        indices = [np.asarray(part.indices) for part in parts]
        numbered = [np.insert(index, 0, number, axis=1) for number, index in enumerate(indices)]
        values = np.concatenate([np.asarray(part.values) for part in parts])
        return cls(np.concatenate(numbered), values, [len(parts), *shapes.pop()])

    def entries(self) -> list[Any]:
        """Return the entries along the first axis, sparse."""
        count, *rest = self._sizes
        indices, values = np.asarray(self.indices), np.asarray(self.values)
        places = [np.flatnonzero(indices[:, 0] == number) for number in range(count)]
        return [type(self)(indices[place][:, 1:], values[place], rest) for place in places]

    @property
    def _type_spec(self) -> "SparseTensorSpec":
        return SparseTensorSpec.from_value(self)

    def __mul__(self, other: Any) -> Self:
        """Multiply the elements with those of a tensor that broadcasts to the shape."""
        return self.with_values(self._values * self._at_places(other))

    def __truediv__(self, other: Any) -> Self:
        """Divide the elements by those of a tensor that broadcasts to the shape."""
        return self.with_values(self._values / self._at_places(other))

    def _at_places(self, other: Any) -> jax.Array:
        dense = convert_to_tensor(other, dtype_hint=self.dtype)
        return jnp.broadcast_to(dense, self._sizes)[tuple(self._indices.T)]

    def tree_flatten(self) -> tuple[Any, Any]:
        """Hand the parts to JAX."""
        return (self._indices, self._values), self._sizes

    @classmethod
    def tree_unflatten(cls, sizes: Any, children: Any) -> Self:
        """Make it again of the parts."""
        indices, values = children
        return cls._of(indices, values, sizes)

    def __repr__(self) -> str:
        """Show the parts."""
        shown = (f"{name}={_text(getattr(self, name))}" for name in ("indices", "values", "dense_shape"))
        return f"SparseTensor({', '.join(shown)})"


def _text(part: Any) -> str:
    return str(part) if isinstance(part, Tracer) else tensor_str(np.asarray(part), as_dtype(part.dtype).name)


@final
@dataclasses.dataclass(frozen=True, repr=False)
class SparseTensorSpec:
    """Describes sparse tensors: the shape of the whole tensor, and the type of the elements.

    Ref: https://www.tensorflow.org/api_docs/python/tf/SparseTensorSpec.
    """

    shape: Any = None
    dtype: _dtypes.DType = _dtypes.float32

    def __post_init__(self) -> None:
        """Accept whatever names a shape and a type."""
        object.__setattr__(self, "shape", TensorShape(self.shape))
        object.__setattr__(self, "dtype", as_dtype(self.dtype))

    @property
    def value_type(self) -> type:
        """The class of what it describes."""
        return SparseTensor

    @classmethod
    def from_value(cls, value: SparseTensor) -> "SparseTensorSpec":
        """Return the spec of a sparse tensor."""
        return cls(value.shape, value.dtype)

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether a sparse tensor, or any of another spec, fits this one."""
        if not isinstance(spec_or_value, SparseTensor | SparseTensorSpec):
            return False
        return self.dtype == spec_or_value.dtype and self.shape.is_compatible_with(spec_or_value.shape)

    def batched(self, size: int | None) -> "SparseTensorSpec":
        """Return the spec of batches."""
        return SparseTensorSpec(TensorShape([size]).concatenate(self.shape), self.dtype)

    def unbatched(self) -> "SparseTensorSpec":
        """Return the spec of the entries along the first axis."""
        return SparseTensorSpec(self.shape[1:], self.dtype)

    def with_shape(self, shape: TensorShape) -> "SparseTensorSpec":
        """Return the spec of another shape."""
        return SparseTensorSpec(shape, self.dtype)

    def __repr__(self) -> str:
        """Write it as TensorFlow does."""
        return f"SparseTensorSpec({self.shape!r}, {self.dtype!r})"


def is_tensor(x: Any) -> bool:
    """Whether `x` is a tensor, a sparse or ragged one or rows of one, or a variable."""
    return is_plain_tensor(x) or isinstance(x, Composite)


def is_sparse(value: Any) -> bool:
    """Whether `value` is a sparse tensor."""
    return isinstance(value, SparseTensor)


def sparse(value: Any) -> SparseTensor:
    """Return `value`, which must be a sparse tensor.

    Raises:
        TypeError: If it is not.
    """
    if isinstance(value, SparseTensor):
        return value
    if hasattr(value, "dense_shape") and not is_plain_tensor(value):
        return SparseTensor.from_value(value)
    raise TypeError(f"Input must be a SparseTensor, got {type(value).__name__}. Use `tf.sparse.from_dense`.")


def type_spec_from_value(value: Any) -> Any:
    """Return the spec of a tensor, a sparse or ragged one, or what becomes a tensor.

    See https://www.tensorflow.org/api_docs/python/tf/type_spec_from_value.

    Raises:
        TypeError: If `value` is none of these.
    """
    if hasattr(value, "_type_spec"):
        return value._type_spec  # noqa: SLF001 -- TensorFlow's name: datasets have it.
    try:
        return TensorSpec.from_tensor(convert_to_tensor(value))
    except (TypeError, ValueError):
        raise TypeError(f"Could not build a TypeSpec for {value!r} of type {type(value).__name__}.") from None
