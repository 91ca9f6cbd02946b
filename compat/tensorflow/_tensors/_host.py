"""Tensors that stay on the host: strings, and sizes that a program must know while it is traced."""

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, final

import jax.numpy as jnp
import numpy as np
from jax.export import is_symbolic_dim

from tfdist_jax._user_code import is_user_code
from tfdist_jax.compat.tensorflow._platform._devices import host_name
from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError
from tfdist_jax.compat.tensorflow._tensors import _dtypes, _texts
from tfdist_jax.compat.tensorflow._tensors._checks import missing_entry
from tfdist_jax.compat.tensorflow._tensors._composite import Composite
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, user_shape
from tfdist_jax.compat.tensorflow._tensors._tensor_text import tensor_repr, tensor_str


@final
class HostTensor(np.ndarray):
    """A tensor in host memory, with a tensor's methods.

    Holds strings, as objects; or sizes, which are objects too while Keras and JAX find out shapes with symbols in them.
    JAX has no strings. And while a function is traced, whatever JAX computes has no value yet: sizes that come from
    `tf.shape(x)` must have one, because `tf.reshape(y, [tf.shape(x)[0], -1])` needs it. Arithmetic with
    host tensors gives host tensors; together with other tensors they act like NumPy arrays.
    """

    @classmethod
    def of(cls, value: Any) -> "HostTensor":
        """View a NumPy array, or make one of `value`; sizes without a symbol become int32."""
        array = value if isinstance(value, np.ndarray) else _as_array(value)
        if array.dtype == object and array.size and all(isinstance(item, int) for item in array.flat):
            array = array.astype(np.int32)
        return np.asarray(array).view(cls)

    @property
    def has_symbols(self) -> bool:
        """Whether it holds sizes that are symbols."""
        if np.ndarray.dtype.__get__(self).kind != "O" or not self.size or type(next(self.flat)) is bytes:
            return False  # Texts are no sizes.
        return any(is_symbolic_dim(item) for item in self.flat)

    @property
    def has_texts(self) -> bool:
        """Whether it holds texts."""
        return np.ndarray.dtype.__get__(self).kind == "O" and not self.has_symbols

    def __eq__(self, other: object) -> Any:
        """Tell where texts are equal, also to Python's; of other shapes they are not. None is no text."""
        return self._compare(other, _texts.equal) if self.has_texts else super().__eq__(other)

    def __ne__(self, other: object) -> Any:
        """Tell where texts differ."""
        return self._compare(other, _texts.not_equal) if self.has_texts else super().__ne__(other)

    def _compare(self, other: Any, compare: Callable[[np.ndarray, np.ndarray], Any]) -> Any:
        is_other = compare is _texts.not_equal
        if other is None:
            return is_other
        if isinstance(other, Composite) and other.has_operators:
            return NotImplemented
        try:
            return HostTensor.of(compare(self, _texts.operand(other, compare.__name__)))
        except InvalidArgumentError:
            if np.dtype(getattr(other, "dtype", object)).kind not in "OSU":
                raise
            return HostTensor.of(is_other)

    def __add__(self, other: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Put texts one behind the other; add sizes."""
        return self._join(other, _texts.join) if self.has_texts else super().__add__(other)

    def __radd__(self, other: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Put texts one before the other; add sizes."""
        return self._join(other, lambda x, y: _texts.join(y, x)) if self.has_texts else super().__radd__(other)

    def _join(self, other: Any, join: Callable[[np.ndarray, np.ndarray], Any]) -> Any:
        if isinstance(other, Composite) and other.has_operators:
            return NotImplemented
        try:
            return HostTensor.of(join(self, _texts.operand(other, "add")))
        except TypeError as error:
            raise InvalidArgumentError(None, None, f"cannot compute add of texts and {other!r}: {error}") from None

    def numpy(self) -> Any:
        """Return a NumPy array, or for a scalar its value."""
        return np.array(self)[()]

    def get_shape(self) -> TensorShape:
        """Return the shape."""
        return user_shape(np.ndarray.shape.__get__(self))

    def set_shape(self, shape: Any) -> None:
        """Check that the tensor has a shape."""
        check_shape(np.ndarray.shape.__get__(self), shape)

    @property
    def shape(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The sizes; for a user's code a `TensorShape`."""
        shape = np.ndarray.shape.__get__(self)
        return user_shape(shape) if is_user_code(sys._getframe(1)) else shape

    @property
    def dtype(self) -> Any:
        """The type; for a user's code a `tf.DType`."""
        dtype = np.ndarray.dtype.__get__(self)
        return self._tf_dtype() if is_user_code(sys._getframe(1)) else dtype

    @property
    def device(self) -> Any:
        """Where it is; for a user's code TensorFlow's name of the processor."""
        return host_name() if is_user_code(sys._getframe(1)) else np.ndarray.device.__get__(self)

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Its class; for a user's code, which asks `isinstance(x, type(tf.constant(0)))` before it takes `x.numpy()`, that of tensors."""
        return _class_of_tensors() if is_user_code(sys._getframe(1)) else HostTensor

    def _tf_dtype(self) -> _dtypes.DType:
        return _dtypes.int32 if self.has_symbols else _dtypes.as_dtype(np.ndarray.dtype.__get__(self))

    def __getitem__(self, key: Any) -> "HostTensor":
        """Return a part, always as a tensor.

        Raises:
            InvalidArgumentError: If there is no such entry, and a user's code asks for it.
        """
        message = missing_entry(key, np.ndarray.shape.__get__(self))
        if message and is_user_code(sys._getframe(1)):
            raise InvalidArgumentError(None, None, message)
        return HostTensor.of(super().__getitem__(key))

    def __iter__(self) -> Iterator["HostTensor"]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Go through the entries of the first axis."""
        return (self[i] for i in range(len(self)))

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> "HostTensor":
        """Keep NumPy's results tensors, scalars too."""
        return HostTensor.of(array)

    def __repr__(self) -> str:
        """Write it as TensorFlow writes tensors."""
        return tensor_repr(self.numpy(), self._tf_dtype().name)

    def __str__(self) -> str:
        """Write it as TensorFlow prints tensors."""
        return tensor_str(self.numpy(), self._tf_dtype().name)

    def __format__(self, format_spec: str) -> str:
        """Write the value as NumPy's, as TensorFlow does in f-strings."""
        return format(self.numpy(), format_spec)


@functools.cache
def _class_of_tensors() -> type:
    return type(jnp.asarray(0))


def holds_texts(value: Any) -> bool:
    """Tell whether a value is a tensor of texts."""
    return isinstance(value, HostTensor) and value.has_texts


def _as_array(value: Any) -> np.ndarray:
    is_text = isinstance(value, bytes)  # NumPy's own arrays of bytes cut zeros from their ends.
    if not is_text and not any(
        is_symbolic_dim(item) for item in (value if isinstance(value, list | tuple) else [value])
    ):
        return np.asarray(value)
    array = np.empty((len(value),) if isinstance(value, list | tuple) else (), object)
    array[...] = value
    return array


def check_shape(shape: tuple[int, ...], wanted: Any) -> None:
    """Raise TensorFlow's ValueError if a tensor's shape does not fit the wanted one."""
    if not TensorShape(wanted).is_compatible_with(shape):
        raise ValueError(f"Tensor's shape {shape} is not compatible with supplied shape {TensorShape(wanted)}.")


def _refuse_texts(name: str) -> None:
    original = getattr(np.ndarray, f"__{name}__")

    @functools.wraps(original)
    def operate(self: HostTensor, *other: Any) -> Any:
        if self.has_texts:
            raise InvalidArgumentError(None, None, f"cannot compute {name} of tensors of texts.")
        return original(self, *other)

    setattr(HostTensor, f"__{name}__", operate)


# Python's bytes have some of these: a product would be repetitions.
for _name in ("sub", "mul", "mod", "truediv", "floordiv", "pow"):
    _refuse_texts(_name)
    _refuse_texts(f"r{_name}")
for _name in ("lt", "le", "gt", "ge", "neg", "abs"):
    _refuse_texts(_name)
