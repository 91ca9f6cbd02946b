"""`tf.Tensor` is `jax.Array`: conversions to it, and TensorFlow's methods on it."""

# Methods are put on JAX's array classes here.
# pyright: reportAttributeAccessIssue=false

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any, cast, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tfdist_jax import PerReplica
from tfdist_jax._internals import (
    ArrayImpl,
    EvalTrace,
    copy_to_device,
    current_trace,
    released_from_device,
    restore_trace_after_interrupts,
)
from tfdist_jax._user_code import is_text_for_user, is_user_code
from tfdist_jax.compat.tensorflow._platform._context import merging_context
from tfdist_jax.compat.tensorflow._platform._devices import device_name, requested_device_of
from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError
from tfdist_jax.compat.tensorflow._tensors import _conversions, _no_value
from tfdist_jax.compat.tensorflow._tensors._dtypes import DType, as_dtype, known_dtype, string
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor, check_shape
from tfdist_jax.compat.tensorflow._tensors._host_tracer import TextTracer
from tfdist_jax.compat.tensorflow._tensors._host_values import host_value
from tfdist_jax.compat.tensorflow._tensors._meeting import meeting
from tfdist_jax.compat.tensorflow._tensors._no_value import NoValueError
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, user_shape
from tfdist_jax.compat.tensorflow._tensors._slices import accept_slices
from tfdist_jax.compat.tensorflow._tensors._tensor_text import replicas_text, tensor_repr, tensor_str

Tensor = jax.Array


def convert_to_tensor(value: Any, dtype: Any = None, dtype_hint: Any = None, name: str | None = None) -> Any:
    """Return `value` as a tensor.

    Args:
        value: A tensor (returned as it is), a variable (its present value), a NumPy array (which keeps its type), or
            numbers, strings and sequences of them: integers become int32, floats float32.
        dtype: The type that the tensor must have; a tensor of another type is an error, not converted.
        dtype_hint: The type to use, if `value` can have it and `dtype` is not given.
        name: Unused.

    Raises:
        TypeError: If `value` has no meaning in `dtype`.
        ValueError: If `value` is a tensor of another type, or of no use as a tensor.

    Example:
        >>> import tfdist_jax.compat.tensorflow as tf
        >>> tf.convert_to_tensor([1.0, 2.0]).dtype
        tf.float32
    """
    wanted = None if dtype is None else as_dtype(dtype)
    array = _array_of(value)
    if array is not None:
        return _of_type(array, wanted)
    if isinstance(value, TextTracer):
        return _of_strings(value, wanted)
    if isinstance(value, HostTensor) and value.has_symbols:
        return jnp.asarray([jnp.asarray(size) for size in value.flat], jnp.int32).reshape(np.shape(value))
    hint = None if dtype_hint is None else as_dtype(dtype_hint)
    if _conversions.is_registered(value):
        return _conversions.convert(value, wanted, hint)
    if _holds_tensors(value):
        return _stacked(value, wanted, hint)
    return _on_device(host_value(value, wanted, hint))


def constant(value: Any, dtype: Any = None, shape: Any = None, name: str = "Const") -> Any:
    """Return a tensor of constants.

    Args:
        value: As for `convert_to_tensor`.
        dtype: The type of the tensor.
        shape: The tensor's shape: `value` has as many elements, or one that fills it.
        name: Unused.

    Raises:
        TypeError: If `value` does not fit `dtype` or `shape`.
    """
    wanted = None if dtype is None else as_dtype(dtype)
    if is_tensor(value) and wanted is not None and value.dtype != wanted:
        raise TypeError(f"Expected tensor {value} with dtype {wanted!r}, but got dtype {as_dtype(value.dtype)!r}.")
    tensor = convert_to_tensor(value, wanted)
    return tensor if shape is None else _filling(tensor, TensorShape(shape))


def is_tensor(x: Any) -> bool:
    """Whether `x` is a tensor or a variable."""
    return type(x) is ArrayImpl or isinstance(x, jax.Array | HostTensor | TextTracer) or hasattr(x, "__jax_array__")


def get_static_value(tensor: Any, partial: bool = False) -> Any:
    """Return a tensor's value if it is known now, or None while a function is traced that computes it."""
    array = _array_of(tensor)
    if isinstance(array, Tracer) or isinstance(tensor, TextTracer):
        return None
    return np.asarray(tensor if array is None else array)


def is_symbolic_tensor(tensor: Any) -> bool:
    """Whether the tensor has no value yet because a function is being traced."""
    return isinstance(tensor, Tracer | TextTracer)


def is_tracing() -> bool:
    """Whether what operations compute has no value yet, because a function is being traced."""
    if isinstance(current_trace(), EvalTrace):
        return False
    # What a transformation computes from constants alone depends on which one it is: try.
    return isinstance(jax.lax.add(np.int32(0), np.int32(0)), Tracer)


@final
class Reference:
    """Stands for a tensor or variable where something hashable is needed; equal to references to the same one."""

    def __init__(self, wrapped: Any) -> None:
        """Refer to `wrapped`."""
        self._wrapped = wrapped

    def deref(self) -> Any:
        """Return what the reference stands for."""
        return self._wrapped

    def __eq__(self, other: object) -> bool:
        """Whether the other reference stands for the same object."""
        return isinstance(other, Reference) and self._wrapped is other._wrapped

    def __hash__(self) -> int:
        """Hash by identity."""
        return id(self._wrapped)

    def __repr__(self) -> str:
        """Show what is wrapped."""
        return f"<Reference wrapping {self._wrapped!r}>"


def _array_of(value: Any) -> Any:
    """Return the JAX array that a tensor or variable is, or None for anything else."""
    if type(value) is ArrayImpl or isinstance(value, jax.Array):
        return value
    convert = getattr(value, "__jax_array__", None)
    return None if convert is None else convert()


def shown(array: jax.Array) -> str:
    """Return what a message shows of a tensor: the text that the user's own code sees."""
    return _text_of_traced("<tf.Tensor {}>", array) if isinstance(array, Tracer) else _text(tensor_repr, array)


def _of_type(array: jax.Array, wanted: DType | None) -> jax.Array:
    if wanted is not None and array.dtype != wanted.dtype:
        raise ValueError(
            f"Tensor conversion requested dtype {wanted.name} for Tensor with dtype {array.dtype.name}: {shown(array)}. "
            f"Use `tf.cast(tensor, tf.{wanted.name})`."
        )
    return array


def _of_strings(tensor: TextTracer, wanted: DType | None) -> TextTracer:
    if wanted not in (None, string):
        raise ValueError(f"Tensor conversion requested dtype {wanted.name} for Tensor with dtype string: {tensor!r}.")
    return tensor


def _holds_tensors(value: Any) -> bool:
    if not isinstance(value, list | tuple) or isinstance(value, TensorShape):
        return False
    return any(is_tensor(item) or _conversions.is_registered(item) or _holds_tensors(item) for item in value)


def _stacked(values: Any, wanted: DType | None, hint: DType | None) -> Any:
    """Stack a sequence in which some are tensors: all of them take a type that is asked for; the others else that of the tensors."""
    if any(isinstance(item, HostTensor) and item.has_texts for item in values):
        return _stacked_texts([convert_to_tensor(item, wanted or string) for item in values])
    if wanted is None and hint is not None:
        with contextlib.suppress(TypeError, ValueError):
            return _stacked(values, hint, None)
    if wanted is None:
        wanted = next((as_dtype(item.dtype) for item in values if is_tensor(item)), None)
        items = [convert_to_tensor(item, wanted) for item in values]
    else:
        items = [_cast_number(item, wanted) if is_tensor(item) else convert_to_tensor(item, wanted) for item in values]
    if all(isinstance(item, HostTensor) for item in values):
        with jax.ensure_compile_time_eval():
            return jnp.stack(items)
    return meeting(jnp.stack, items)


def _stacked_texts(tensors: list[Any]) -> HostTensor:
    shapes = {np.shape(tensor) for tensor in tensors}
    if len(shapes) > 1:
        raise InvalidArgumentError(None, None, f"Shapes of all inputs must match, got {sorted(shapes)}.")
    return HostTensor.of(np.stack([np.asarray(tensor) for tensor in tensors]))


def _cast_number(tensor: Any, wanted: DType) -> Any:
    """Return a tensor in another type; texts and complex numbers have no other."""
    array: Any = convert_to_tensor(tensor)
    has_no_other = isinstance(array, HostTensor) or jnp.iscomplexobj(array)
    return _of_type(cast(Any, array), wanted) if has_no_other else array.astype(wanted.dtype)


def _on_device(value: np.ndarray) -> Any:
    """Give a host value to JAX, of its own type and in memory of its own."""
    if value.dtype == object:
        return HostTensor.of(value)
    if isinstance(current_trace(), EvalTrace):
        array = copy_to_device(value)
        if array is not None:
            return array
    # `jnp.asarray` copies NumPy's memory; `jnp.array` would pass 64-bit values through 32 bits (jax 0.10).
    if value.dtype.kind in "iu":
        # Integers may be shapes and axes: they keep a value that is known even while a function is traced.
        with jax.ensure_compile_time_eval():
            return jnp.asarray(value, dtype=value.dtype)
    return jnp.asarray(value, dtype=value.dtype)


def _filling(tensor: Any, shape: TensorShape) -> Any:
    if tensor.size == 1:
        return jnp.broadcast_to(tensor.reshape(()), shape) if isinstance(tensor, jax.Array) else _filled(tensor, shape)
    if tensor.size != shape.num_elements():
        raise TypeError(f"tf.constant got {tensor.size} elements for `shape` {shape} with {shape.num_elements()}.")
    return tensor.reshape(shape)


def _filled(text: HostTensor, shape: TensorShape) -> HostTensor:
    return HostTensor.of(np.full(shape, text[()], object))


def install() -> None:
    """Put TensorFlow's methods on JAX's arrays, and let explicit 64-bit types be what they say.

    `shape`, `dtype`, `device` and the text become TensorFlow's for user code alone: libraries get the tuple, the NumPy
    dtype, the device and the text they always got. Calling it again changes nothing.
    """
    jax.config.update("jax_explicit_x64_dtypes", "allow")
    if hasattr(ArrayImpl, "get_shape"):
        return
    restore_trace_after_interrupts()
    _no_value.install()
    for cls in (ArrayImpl, Tracer):
        cls.get_shape = lambda self: user_shape(tuple(self.shape))
        cls.set_shape = lambda self, shape: check_shape(tuple(self.shape), shape)
        cls.ref = lambda self: Reference(self)
        cls.values = property(_values)
        cls.shape = _property(cls.shape, user_shape)
        cls.dtype = _property(cls.dtype, known_dtype)
        accept_slices(cls)
    for cls in (ArrayImpl, Tracer):
        cls.__hash__ = _unhashable
        cls.__len__ = _of_a_scalar(cls.__len__, "Scalar tensor has no `len()`")
        cls.__iter__ = _of_a_scalar(cls.__iter__, "Cannot iterate over a scalar tensor.")
    ArrayImpl.__setitem__ = _refuse_assignment
    for number in (int, float):
        name = f"__{number.__name__}__"
        setattr(ArrayImpl, name, _of_complex(number, getattr(ArrayImpl, name)))
    for name in ("__repr__", "__str__"):
        setattr(
            PerReplica, name, _for_user(getattr(PerReplica, name), functools.partial(_replicas, name), is_text_for_user)
        )
    values: Any = PerReplica.values
    PerReplica.values = property(_for_user(values.fget, _free_values), doc=values.__doc__)
    ArrayImpl.numpy = _numpy
    device: Any = ArrayImpl.device
    ArrayImpl.backing_device = property(device_name, doc="The name of the device that holds the tensor.")
    Tracer.device = property(
        _device_of_traced, doc="What `tf.device` named where the tensor was computed; empty if nothing."
    )
    ArrayImpl.device = property(_for_user(device.fget, device_name), doc=device.__doc__)
    for name, text in (("__repr__", tensor_repr), ("__str__", tensor_str)):
        setattr(ArrayImpl, name, _for_user(getattr(ArrayImpl, name), functools.partial(_text, text), is_text_for_user))
    Tracer.__str__ = _for_user(Tracer.__repr__, functools.partial(_text_of_traced, "Tensor({})"), is_text_for_user)
    Tracer.__repr__ = _for_user(Tracer.__repr__, functools.partial(_text_of_traced, "<tf.Tensor {}>"), is_text_for_user)
    Tracer.__getattr__ = _without_value(Tracer.__getattr__)


def _unhashable(self: Any) -> int:
    raise TypeError("Tensor is unhashable. Instead, use tensor.ref() as the key.")


def _of_a_scalar(original: Callable[[Any], Any], message: str) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def get(self: Any) -> Any:
        if not self.ndim:
            raise TypeError(message)
        return original(self)

    return get


def _refuse_assignment(self: Any, key: Any, value: Any) -> None:
    raise TypeError(
        "'Tensor' object does not support item assignment. Use tf.tensor_scatter_nd_update, or assign to a slice of a "
        "tf.Variable: v[i].assign(value)."
    )


def _of_complex(number: Callable[[Any], Any], original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Convert a complex tensor as NumPy does: with a warning, and without its imaginary part."""

    @functools.wraps(original)
    def convert(self: Any) -> Any:
        return original(self) if self.dtype.kind != "c" else number(np.asarray(self)[()])

    return convert


def _numpy(self: jax.Array) -> Any:
    """Return the value as a NumPy array of its own, or for a scalar as a NumPy scalar."""
    return np.array(self)[()]


def _values(self: jax.Array) -> tuple[Any, ...]:
    """Return the replicas' values of what `merge_call` has been given, where a tensor stands for all of them."""
    context = merging_context()
    if context is None:
        raise AttributeError(f"'{type(self).__name__}' object has no attribute 'values'")
    return context.strategy.experimental_local_results(self)


def free_value(value: Any) -> Any:
    """Return one replica's value as one that operations may combine with those of other devices."""
    if type(value) is ArrayImpl and value.committed and len(value.devices()) == 1:
        return released_from_device(value)
    return value


def _free_values(value: PerReplica) -> tuple[Any, ...]:
    return tuple(map(free_value, value.values))


def _property(original: Any, for_user: Callable[[Any], Any]) -> Any:
    read, frame = original.fget, sys._getframe

    def get(self: Any) -> Any:
        value = read(self)
        return for_user(value) if is_user_code(frame(1)) else value

    return property(get, doc=original.__doc__)


def _for_user(
    original: Callable[[Any], Any], for_user: Callable[[Any], Any], is_user: Callable[[Any], bool] = is_user_code
) -> Callable[[Any], Any]:
    frame = sys._getframe

    @functools.wraps(original)
    def get(self: Any) -> Any:
        return for_user(self) if is_user(frame(1)) else original(self)

    return get


def _text(text: Callable[[Any, str], str], array: jax.Array) -> str:
    if array.is_fully_addressable or array.is_fully_replicated:
        return text(_numpy(array), array.dtype.name)
    return f"<tf.Tensor: shape={array.shape}, dtype={array.dtype.name}, on several processes>"


def _text_of_traced(form: str, tensor: jax.Array) -> str:
    """Return what is shown of a tensor without a value: TensorFlow's text, but for the name of an operation in a graph."""
    return form.format(f"shape={tuple(tensor.shape)}, dtype={tensor.dtype.name}")


def _replicas(name: str, value: PerReplica) -> str:
    is_repr = name == "__repr__"
    tensor = functools.partial(_text, tensor_repr if is_repr else tensor_str)
    shown = lambda part: tensor(part) if type(part) is ArrayImpl else repr(part) if is_repr else str(part)
    return replicas_text("PerReplica", map(shown, value.values))


def _device_of_traced(self: Tracer) -> str:
    if is_user_code(sys._getframe(1)):
        return requested_device_of(self)
    raise AttributeError("device")  # So that libraries get what JAX has under the name.


def _without_value(original: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def get(self: Any, name: str) -> Any:
        if name == "numpy":
            raise NoValueError(
                "A tensor in a function that is being traced has no `numpy()`: its value is not known before the function "
                "runs. Return it, or use `tf.print`."
            )
        return original(self, name)

    return get
