"""`tf.IndexedSlices`: some rows of a tensor, as gradients of lookups are."""

from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax._errors import ConcreteValueRequiredError
from tfdist_jax._internals import known_value
from tfdist_jax.compat.tensorflow._tensors._composite import Composite
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor


@final
@jax.tree_util.register_pytree_node_class
class IndexedSlices(Composite):
    """Drop-in for `tf.IndexedSlices`: row `i` of `values` belongs to row `indices[i]` of a tensor; repeated ones add up.

    A tensor is made of it where one is asked for.
    Ref: https://www.tensorflow.org/api_docs/python/tf/IndexedSlices
    """

    def __init__(self, values: Any, indices: Any, dense_shape: Any = None) -> None:
        """Hold `values`, `[n, *row]`, and `indices`, `[n]`; `dense_shape` is the whole tensor's shape, if known."""
        self._values, self._indices = convert_to_tensor(values), convert_to_tensor(indices)
        self._dense_shape = None if dense_shape is None else _sizes(dense_shape)

    @property
    def values(self) -> jax.Array:
        """The rows."""
        return self._values

    @property
    def indices(self) -> jax.Array:
        """The rows' numbers."""
        return self._indices

    @property
    def dense_shape(self) -> jax.Array | None:
        """The shape of the whole tensor, an int32 tensor, or None."""
        return None if self._dense_shape is None else convert_to_tensor(self._dense_shape, dtype="int32")

    @property
    def shape(self) -> TensorShape:
        """The shape of the whole tensor, as far as it is known."""
        return TensorShape(self._dense_shape)

    @property
    def dtype(self) -> Any:
        """The type of the values."""
        return as_dtype(self._values.dtype)

    @property
    def name(self) -> str:
        """A name."""
        return "IndexedSlices"

    def with_values(self, values: Any) -> "IndexedSlices":
        """Return other values for the same rows."""
        return IndexedSlices(values, self._indices, self._dense_shape)

    def parts(self) -> list[Any]:
        """Return the tensors that it is made of: values, rows' numbers, and the whole shape if it is known."""
        return [self._values, self._indices, *([] if self._dense_shape is None else [self.dense_shape])]

    def with_parts(self, parts: Sequence[Any]) -> "IndexedSlices":
        """Return the slices of other tensors."""
        return type(self)(*parts)

    def consumers(self) -> list[Any]:
        """Return the operations that use it: they are not recorded."""
        return []

    def __neg__(self) -> "IndexedSlices":
        """Return the negative values for the same rows."""
        return self.with_values(-self._values)

    def __jax_array__(self) -> jax.Array:
        """Return the whole tensor."""
        if self._dense_shape is None:
            raise ValueError(
                "Tensor conversion requested for IndexedSlices without dense_shape: the number of rows is not known. "
                "Give `dense_shape` when making it."
            )
        whole = jnp.zeros(self._dense_shape, self._values.dtype)
        return whole.at[self._indices].add(self._values, mode="drop")

    def __repr__(self) -> str:
        return f"IndexedSlices(indices={self._indices}, values={self._values}, dense_shape={self._dense_shape})"

    def tree_flatten(self) -> tuple[tuple[Any, Any], Any]:
        """Let JAX's functions take and return it."""
        return (self._values, self._indices), self._dense_shape

    @classmethod
    def tree_unflatten(cls, dense_shape: Any, parts: Any) -> "IndexedSlices":
        """Put together what `tree_flatten` took apart, whatever the parts have become."""
        slices = object.__new__(cls)
        slices._values, slices._indices = parts
        slices._dense_shape = dense_shape
        return slices


def _sizes(shape: Any) -> tuple[int, ...]:
    known = known_value(shape)
    if known is None:
        raise ConcreteValueRequiredError(
            "The `dense_shape` of tf.IndexedSlices depends on values that are not known while the function is traced."
        )
    return tuple(int(n) for n in np.asarray(known))


def is_slices(value: Any) -> bool:
    """Whether `value` is `tf.IndexedSlices`."""
    return isinstance(value, IndexedSlices)


def on_values(function: Callable[[Any], Any], tensor: Any) -> Any:
    """Apply `function` to a tensor, or to the values of `tf.IndexedSlices` alone."""
    if isinstance(tensor, IndexedSlices):
        return tensor.with_values(function(tensor.values))
    return function(convert_to_tensor(tensor))
