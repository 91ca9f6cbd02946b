"""What operations do with their arguments: types that must agree, and sizes that must be known."""

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.export import is_symbolic_dim

from tfdist_jax._errors import ConcreteValueRequiredError
from tfdist_jax._internals import known_value
from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor, holds_texts
from tfdist_jax.compat.tensorflow._tensors._host_values import host_value
from tfdist_jax.compat.tensorflow._tensors._meeting import brought_together, is_of_devices
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, is_tensor
from tfdist_jax.compat.tensorflow._tensors._texts import is_text

# Bytes of the types that JAX takes from NumPy as they are.
_NARROW = 4


def invalid(message: str) -> InvalidArgumentError:
    """Return TensorFlow's error for arguments that do not fit."""
    return InvalidArgumentError(None, None, message)


def compute(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a JAX function; shapes and types that it refuses are TensorFlow's InvalidArgumentError."""
    try:
        return function(*args, **kwargs)
    except jax.errors.JAXTypeError:
        raise  # A value that is not known while tracing: JAX's own message says what to do.
    except (TypeError, ValueError, IndexError, ZeroDivisionError) as error:
        if is_of_devices(error):
            together, named = brought_together((args, kwargs))
            return function(*together, **named)
        raise invalid(str(error)) from error


def same_type(x: Any, y: Any) -> tuple[Any, Any]:
    """Return two tensors of one type: what is no tensor takes the type of the other.

    Raises:
        InvalidArgumentError: If both are tensors, of different types, or one has no meaning in the type of the other.
    """
    if is_tensor(y) and not is_tensor(x):
        y = convert_to_tensor(y)
        x = _like(x, y)
    else:
        x = convert_to_tensor(x)
        y = convert_to_tensor(y) if is_tensor(y) else _like(y, x)
    if x.dtype != y.dtype:
        raise invalid(f"The tensors' types differ: {x.dtype} and {y.dtype}. Use `tf.cast` on one of them.")
    return x, y


def _like(value: Any, tensor: Any) -> Any:
    """Return what is no tensor in the type of one, if it has a meaning in it."""
    wanted = as_dtype(tensor.dtype)
    if isinstance(value, int | float) and 0 < wanted.size <= _NARROW:
        # A NumPy number will do, and takes a tenth of the time.
        return host_value(value, hint=wanted)
    # A text never has a meaning as a number, nor a number as a text.
    is_strict = wanted.name == "string" or is_text(value)
    return convert_to_tensor(value, wanted if is_strict else None, dtype_hint=wanted)


def all_same_type(values: Any) -> list[Any]:
    """Return the values as tensors of one type: that of the first tensor, or else of the first value.

    Sizes with symbols are host tensors, and so is what is put together with them.
    """
    if any(isinstance(value, HostTensor) and value.has_symbols for value in values):
        return [HostTensor.of(value) for value in values]
    wanted = next((as_dtype(value.dtype) for value in values if is_tensor(value)), None)
    tensors = []
    for value in values:
        tensor = convert_to_tensor(value) if wanted is None or is_tensor(value) else convert_to_tensor(value, wanted)
        wanted = wanted or as_dtype(tensor.dtype)
        if tensor.dtype != wanted.dtype:
            raise invalid(f"All tensors must have one type, got {wanted.name} and {tensor.dtype}. Use `tf.cast`.")
        tensors.append(tensor)
    return tensors


def require(tensor: Any, wanted: str, operation: str) -> Any:
    """Return `tensor` if its type is of a wanted kind.

    Args:
        tensor: The tensor.
        wanted: Letters for kinds: f float, c complex, i integer, b bool.
        operation: Name for the error.

    Raises:
        InvalidArgumentError: If it is of another kind.
    """
    dtype = as_dtype(tensor.dtype)
    kind = "f" if dtype.is_floating else "i" if dtype.is_integer else dtype.kind
    if kind not in wanted:
        kinds = {"f": "floating", "c": "complex", "i": "integer", "b": "bool"}
        allowed = ", ".join(kinds[letter] for letter in wanted)
        raise invalid(f"tf.{operation} takes {allowed} tensors, got {dtype.name}. Use `tf.cast`.")
    return tensor


_NOT_KNOWN = (
    "`{}` depends on values that are not known while the function is traced, but XLA needs to know it. Compute it from "
    "Python numbers or from `tf.shape(x)`, or outside of the function."
)


def value_of(tensor: Any, otherwise: str) -> Any:
    """Return the value of a tensor; also while a function is traced, if it follows from constants.

    Raises:
        ConcreteValueRequiredError: With the message `otherwise`, if the tensor depends on the function's inputs.
    """
    value = known_value(tensor)
    if value is None:
        raise ConcreteValueRequiredError(otherwise)
    return value


def static_int(value: Any, name: str) -> Any:
    """Return an argument that XLA needs as a number when a function is traced."""
    if isinstance(value, Tracer):
        value = value_of(value, _NOT_KNOWN.format(name))
    if isinstance(value, np.ndarray) and value.dtype == object:
        value = value.item()
    size: Any = value
    if is_symbolic_dim(size):
        return size  # Keras finds out shapes with a batch size that stays a symbol; so does JAX.
    return operator.index(convert_to_tensor(value) if hasattr(value, "__jax_array__") else value)


def static_ints(values: Any, name: str) -> tuple[Any, ...]:
    """Return an argument that XLA needs as a sequence of numbers, such as a shape; one number is a sequence of one."""
    if hasattr(values, "__jax_array__") and not isinstance(values, jax.Array) and not is_symbolic_dim(values):
        values = convert_to_tensor(values)
    if isinstance(values, Tracer) and values.ndim == 0:
        return (static_int(values, name),)
    if isinstance(values, jax.Array | np.ndarray):
        values = np.asarray(value_of(values, _NOT_KNOWN.format(name))).tolist()
    if isinstance(values, list | tuple | range):
        return tuple(static_int(value, name) for value in values)
    return (static_int(values, name),)


def static_axis(axis: Any, rank: int, name: str = "axis") -> int:
    """Return an axis counted from the first.

    Raises:
        InvalidArgumentError: If a tensor of `rank` axes has it neither from the first nor from the last.
    """
    number = static_int(axis, name)
    if not -rank <= number < rank:
        raise invalid(f"Expected `{name}` in the range [{-rank}, {rank}), but got {number}")
    return number % rank


def axes(axis: Any) -> Any:
    """Return an `axis` argument for JAX: None, a number or a tuple."""
    if axis is None:
        return None
    numbers = static_ints(axis, "axis")
    return numbers if np.ndim(axis) else numbers[0]


def keeps_static(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Let an operation on host tensors give host tensors, so that arithmetic on shapes stays known while tracing."""

    @functools.wraps(operation)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves = _leaves((args, tuple(kwargs.values())))
        if HostTensor not in map(type, leaves) or not all(map(_is_known, leaves)):
            return operation(*args, **kwargs)
        if any(isinstance(leaf, HostTensor) and leaf.has_symbols for leaf in leaves):
            return operation(*args, **kwargs)
        with jax.ensure_compile_time_eval():
            return jax.tree.map(HostTensor.of, operation(*args, **kwargs))

    return call


def carries_texts(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Let an operation that moves the elements of its first argument move texts too: it moves their numbers."""
    name = next(iter(inspect.signature(operation).parameters))

    @functools.wraps(operation)
    def call(*args: Any, **kwargs: Any) -> Any:
        first = args[0] if args else kwargs.get(name)
        if type(first) is not HostTensor and not is_text(first):
            return operation(*args, **kwargs)
        tensor = convert_to_tensor(first)
        if not holds_texts(tensor):
            return operation(*args, **kwargs)
        texts, rest = np.asarray(tensor), {key: value for key, value in kwargs.items() if key != name}
        with jax.ensure_compile_time_eval():
            numbers = operation(convert_to_tensor(np.arange(texts.size).reshape(texts.shape)), *args[1:], **rest)
        return jax.tree.map(functools.partial(_numbered, texts.ravel()), numbers)

    return call


def _numbered(texts: np.ndarray, numbers: Any) -> HostTensor:
    known = value_of(numbers, "A choice among texts depends on values that are not known while the function is traced.")
    return HostTensor.of(texts[np.asarray(known)])


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


def _is_known(value: Any) -> bool:
    """Whether nothing can be learnt of the value by tracing or taping it."""
    if isinstance(value, jax.Array):
        return not isinstance(value, Tracer) and value.dtype.kind in "iub"
    return not is_tensor(value) or isinstance(value, HostTensor)
