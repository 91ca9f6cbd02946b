"""`tf.TensorArray`: results that a loop writes one by one."""

from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax._errors import ConcreteValueRequiredError
from tfdist_jax._internals import known_value
from tfdist_jax.compat.tensorflow._ops._arguments import static_int, value_of
from tfdist_jax.compat.tensorflow._ops._concat import concat
from tfdist_jax.compat.tensorflow._ops._creation import zeros
from tfdist_jax.compat.tensorflow._ops._selection import gather
from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError, OutOfRangeError
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor


def _replaced(elements: Any, places: Any, values: Any) -> Any:
    """Return elements with other ones at some places, which have to be known if they are texts."""
    if not isinstance(elements, HostTensor):
        return elements.at[places].set(values)
    where = value_of(places, "The places of texts in a tf.TensorArray must be known while a function is traced.")
    texts = np.array(elements)
    texts[np.asarray(where)] = np.array(values)[()]
    return HostTensor.of(texts)


@final
@jax.tree_util.register_pytree_node_class
class TensorArray:
    """A list of tensors of one shape; every `write` gives a new one, which takes the place of the old.

    Differs from TensorFlow: all elements have one shape; elements never written are zeros. A function in which it grows
    at places that are not known while it is traced runs as Python.
    Ref: https://www.tensorflow.org/api_docs/python/tf/TensorArray

    Example:
        >>> import tfdist_jax.compat.tensorflow as tf
        >>> squares = tf.TensorArray(tf.int32, size=3)
        >>> for i in range(3):
        ...     squares = squares.write(i, i * i)
        >>> squares.stack().tolist()
        [0, 1, 4]
    """

    def __init__(
        self,
        dtype: Any,
        size: Any = None,
        dynamic_size: bool | None = None,
        clear_after_read: bool | None = None,
        tensor_array_name: str | None = None,
        handle: Any = None,
        flow: Any = None,
        infer_shape: bool = True,
        element_shape: Any = None,
        colocate_with_first_write_call: bool = True,
        name: str | None = None,
    ) -> None:
        """Make an array of `size` elements of `dtype`; with `dynamic_size` writing past the end makes it longer."""
        self._dtype = as_dtype(dtype)
        self._size = 0 if size is None else static_int(size, "size")
        self._dynamic = bool(dynamic_size)
        self._has_room = False
        self._buffer: Any = None
        shape = None if element_shape is None else TensorShape(element_shape)
        if shape is not None and shape.is_fully_defined():
            self._buffer = zeros((self._size, *shape.as_list()), self._dtype)

    def tree_flatten(self) -> tuple[tuple[Any], Any]:
        """Return the elements, and what is constant."""
        return (self._buffer,), (self._dtype, self._size, self._dynamic, self._has_room)

    @classmethod
    def tree_unflatten(cls, constants: Any, leaves: tuple[Any]) -> "TensorArray":
        """Make an array from its parts."""
        array = object.__new__(cls)
        array._dtype, array._size, array._dynamic, array._has_room = constants
        (array._buffer,) = leaves
        return array

    @property
    def is_empty(self) -> bool:
        """Whether no element has been written yet, so that their shape is unknown."""
        return self._buffer is None

    @property
    def places(self) -> int:
        """How many elements there is room for."""
        return self._size

    @property
    def dtype(self) -> Any:
        """The elements' dtype."""
        return self._dtype

    @property
    def dynamic_size(self) -> bool:
        """Whether writing past the end makes it longer."""
        return self._dynamic

    @property
    def element_shape(self) -> TensorShape:
        """The elements' shape; unknown before the first write."""
        return TensorShape(None if self._buffer is None else self._buffer.shape[1:])

    def size(self, name: str | None = None) -> jax.Array:
        """Return the number of elements."""
        return convert_to_tensor(np.int32(len(self)))

    def identity(self) -> "TensorArray":
        """Return the same elements."""
        return self._with(self._buffer, self._size)

    def write(self, index: Any, value: Any, name: str | None = None) -> "TensorArray":
        """Return the array with another element at `index`.

        Raises:
            OutOfRangeError: If there is no such place; in a compiled loop that is not noticed.
            InvalidArgumentError: If the other elements have another shape.
        """
        value = convert_to_tensor(value, dtype=self._dtype)
        index = convert_to_tensor(index)
        size = self._size_with(index)
        buffer = self._room(value.shape, size)
        if buffer.shape[1:] != value.shape:
            raise InvalidArgumentError(
                None,
                None,
                f"Could not write to TensorArray index {index}: the element has shape {tuple(value.shape)}, but the "
                f"others have {tuple(buffer.shape[1:])}.",
            )
        return self._with(_replaced(buffer, index, value), size)

    def _size_with(self, index: Any) -> int:
        """Return the size of the array after a write at `index`."""
        known = known_value(index)
        if known is not None:
            return self._grown(int(known))
        if self._dynamic and not self._has_room:
            raise ConcreteValueRequiredError(
                "A tf.TensorArray with `dynamic_size` is written to at a place that is not known while the function is "
                "traced. To have the loop compiled give `size` and leave `dynamic_size` out."
            )
        return self._size

    def _grown(self, index: int) -> int:
        if 0 <= index < self._size:
            return self._size
        if not self._dynamic or index < 0:
            raise OutOfRangeError(
                None,
                None,
                f"Tried to write to index {index} but array is not resizeable and size is: {self._size}",
            )
        return index + 1

    def _room(self, shape: Any, size: int) -> jax.Array:
        if self._buffer is None:
            if not size:
                raise ValueError(
                    "A tf.TensorArray that is written to in a loop of a compiled function needs `size`: it cannot grow "
                    "there."
                )
            return zeros((size, *shape), self._dtype)
        missing = size - self._buffer.shape[0]
        if not missing:
            return self._buffer
        if isinstance(self._buffer, HostTensor):
            return concat([self._buffer, zeros((missing, *shape), self._dtype)], 0)
        return jnp.pad(self._buffer, [(0, missing)] + [(0, 0)] * (self._buffer.ndim - 1))

    def _with(self, buffer: Any, size: int) -> "TensorArray":
        return TensorArray.tree_unflatten((self._dtype, size, self._dynamic, self._has_room), (buffer,))

    def with_room(self, size: int) -> "TensorArray":
        """Return the array for the inside of a loop after which it will have grown to `size`."""
        buffer = None if self._buffer is None else self._room(self._buffer.shape[1:], size)
        return TensorArray.tree_unflatten((self._dtype, size, self._dynamic, True), (buffer,))

    def grown(self) -> "TensorArray":
        """Return the array for what follows after that loop."""
        return TensorArray.tree_unflatten((self._dtype, self._size, self._dynamic, False), (self._buffer,))

    def _must_be_of_its_size(self) -> None:
        if self._has_room:
            raise ConcreteValueRequiredError("The size of a tf.TensorArray is used in the loop in which it grows.")

    def _filled(self) -> jax.Array:
        self._must_be_of_its_size()
        return self._elements()

    def _elements(self) -> jax.Array:
        if self._buffer is None:
            if self._size:
                raise InvalidArgumentError(None, None, "TensorArray has no elements yet: write them first.")
            return zeros((0,), self._dtype)
        return self._buffer

    def read(self, index: Any, name: str | None = None) -> jax.Array:
        """Return the element at `index`."""
        elements, index = self._elements(), convert_to_tensor(index)
        known = known_value(index)
        if known is not None and not 0 <= int(known) < self._size:
            raise OutOfRangeError(None, None, f"Tried to read from index {int(known)} but array size is: {self._size}")
        return elements[int(index)] if isinstance(elements, HostTensor) else elements[index]

    def stack(self, name: str | None = None) -> jax.Array:
        """Return all elements, `[size, *element]`."""
        return self._filled()

    def gather(self, indices: Any, name: str | None = None) -> jax.Array:
        """Return the elements at `indices`."""
        return gather(self._filled(), indices)

    def concat(self, name: str | None = None) -> jax.Array:
        """Return the elements joined along their first axis."""
        elements = self._filled()
        if elements.ndim < 2:
            raise ValueError("TensorArray.concat needs elements of rank 1 or more; use stack() for scalars.")
        return elements.reshape(-1, *elements.shape[2:])

    def unstack(self, value: Any, name: str | None = None) -> "TensorArray":
        """Return an array of the entries of `value` along its first axis."""
        value = convert_to_tensor(value, dtype=self._dtype)
        if not self._dynamic and self._size not in (0, value.shape[0]):
            raise InvalidArgumentError(
                None, None, f"TensorArray of size {self._size} cannot hold the {value.shape[0]} entries of the tensor."
            )
        return self._with(value, value.shape[0])

    def scatter(self, indices: Any, value: Any, name: str | None = None) -> "TensorArray":
        """Return the array with the entries of `value` at `indices`."""
        value = convert_to_tensor(value, dtype=self._dtype)
        places = np.asarray(indices)
        size = self._grown(int(places.max())) if places.size else self._size
        return self._with(_replaced(self._room(value.shape[1:], size), places, value), size)

    def split(self, value: Any, lengths: Any, name: str | None = None) -> "TensorArray":
        """Return an array of the parts of `value` along its first axis; all must have one length."""
        value, lengths = convert_to_tensor(value, dtype=self._dtype), np.asarray(lengths)
        if len(set(lengths.tolist())) > 1:
            raise NotImplementedError(
                "TensorArray.split into parts of different length is not supported: use tf.split."
            )
        return self._with(value.reshape(len(lengths), -1, *value.shape[1:]), len(lengths))

    def close(self, name: str | None = None) -> None:
        """Do nothing: memory is freed when nobody holds the elements."""

    def __len__(self) -> int:
        """Return the size as a Python number."""
        self._must_be_of_its_size()
        return self._size

    def __repr__(self) -> str:
        return f"<tf.TensorArray size={self._size} dtype={self._dtype.name}>"
