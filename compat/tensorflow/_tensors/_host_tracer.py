"""What stands for values of the host in a function that is being traced: tensors of strings, and ragged ones."""

import operator
import sys
from collections.abc import Callable
from typing import Any, NoReturn, Protocol, final

import numpy as np

from tfdist_jax._errors import ConcreteValueRequiredError
from tfdist_jax._user_code import is_user_code
from tfdist_jax.compat.tensorflow._platform._devices import host_name
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._host import check_shape
from tfdist_jax.compat.tensorflow._tensors._no_value import NoValueError
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, user_shape


class Notes(Protocol):
    """What notes operations of the host."""

    def note(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Note a call, and return what stands for its results."""


class HostTracer:
    """Stands for a value that the host computes while a function is traced: its attributes and operators are noted, too.

    Attributes:
        notes: The host part of the function.
        number: Which of its values this is.
    """

    _what = "A value"

    def __init__(self, notes: Notes, number: int, example: Any) -> None:
        """Stand for a value like `example`."""
        self.notes = notes
        self.number = number
        self._kind = type(example)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(self._kind, name):
            raise AttributeError(f"{self._kind.__name__!r} object has no attribute {name!r}")
        if callable(getattr(self._kind, name)):
            return lambda *args, **kwargs: self.notes.note(_call_method, (self, name, *args), kwargs)
        return self.notes.note(getattr, (self, name), {})

    def __getitem__(self, key: Any) -> Any:
        """Return a part."""
        return self.notes.note(operator.getitem, (self, key), {})

    def __eq__(self, other: object) -> Any:
        """Compare each value."""
        return self.notes.note(operator.eq, (self, other), {})

    def __ne__(self, other: object) -> Any:
        """Compare each value."""
        return self.notes.note(operator.ne, (self, other), {})

    __hash__ = object.__hash__

    def numpy(self) -> NoReturn:
        """Raise the error of a tensor without a value."""
        raise NoValueError(
            f"{self._what} has no value while a function is traced. Use TensorFlow's functions, such as `tf.strings.join`, or "
            "`tf.py_function`."
        )

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ConcreteValueRequiredError(
            f"{self._what} is needed while a function is traced. Use TensorFlow's functions on it."
        )

    __bool__ = __int__ = __float__ = __iter__ = __len__ = __array__


def _call_method(value: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(value, name)(*args, **kwargs)


def _noting(function: Callable[..., Any], *, is_reflected: bool = False) -> Callable[..., Any]:
    def operate(self: HostTracer, *others: Any) -> Any:
        return self.notes.note(function, (*others, self) if is_reflected else (self, *others), {})

    return operate


for _name in [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "lt",
    "le",
    "gt",
    "ge",
    "and_",
    "or_",
    "neg",
    "abs",
    "invert",
]:
    _plain = _name.rstrip("_")
    setattr(HostTracer, f"__{_plain}__", _noting(getattr(operator, _name)))
    if _name in ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and_", "or_"]:
        setattr(HostTracer, f"__r{_plain}__", _noting(getattr(operator, _name), is_reflected=True))


@final
class TextTracer(HostTracer):
    """Stands for a tensor of strings while a function is traced: its shape is known, its value is not.

    What TensorFlow's functions and operators compute with it is noted, and done on the host before each run of the function.
    """

    _what = "A tensor of strings"

    def __init__(self, notes: Notes, number: int, example: np.ndarray) -> None:
        """Stand for a value like `example`."""
        super().__init__(notes, number, example)
        self._shape = np.shape(example)

    @property
    def shape(self) -> Any:
        """The sizes; for a user's code a `TensorShape`."""
        return user_shape(self._shape) if is_user_code(sys._getframe(1)) else self._shape

    @property
    def dtype(self) -> Any:
        """The type; for a user's code `tf.string`."""
        return _dtypes.string if is_user_code(sys._getframe(1)) else np.dtype(object)

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """How many strings there are."""
        return int(np.prod(self._shape))

    @property
    def device(self) -> str:
        """TensorFlow's name of the processor."""
        return host_name()

    def get_shape(self) -> TensorShape:
        """Return the shape."""
        return user_shape(self._shape)

    def set_shape(self, shape: Any) -> None:
        """Check that the tensor has a shape."""
        check_shape(self._shape, shape)

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("A scalar tensor has no len().")
        return self._shape[0]

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<tf.Tensor shape={self._shape} dtype=string>"

    def __str__(self) -> str:
        return f"Tensor(shape={self._shape}, dtype=string)"
