"""What Python and NumPy values mean as tensors: TensorFlow's rules for types."""

from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._dtypes import DType
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape

_INT32, _INT64, _UINT64_MAX = np.iinfo(np.int32), np.iinfo(np.int64), 2**64 - 1
_MIXED = "Can't convert Python sequence with mixed types to Tensor: {!r}."
_OUT_OF_RANGE = "Can't convert Python sequence with out-of-range integer to Tensor: {!r}."
_FLOAT32_MAX = np.finfo(np.float32).max
_PYTHON_TYPES = {"b": _dtypes.bool_, "i": _dtypes.int32, "f": _dtypes.float32, "c": _dtypes.complex128}
# Kinds of Python values that a kind of tensor can hold.
_FITS = {"b": "b", "i": "bi", "u": "bi", "f": "bif", "V": "bif", "c": "bifc"}


def host_value(value: Any, dtype: DType | None = None, hint: DType | None = None) -> np.ndarray:
    """Return a value as a NumPy array of the type that its tensor has.

    Args:
        value: NumPy arrays keep their type; Python's integers become int32 (int64 if they must), floats float32;
            strings become an array of bytes objects. In lists NumPy's floats keep their type, its integers count as Python's.
        dtype: The type to use. NumPy arrays are converted; of Python's values only those that fit.
        hint: The type to use if the value fits.

    Raises:
        TypeError: If Python numbers do not fit `dtype`.
        ValueError: If `value` is no tensor.
    """
    if isinstance(value, np.ndarray | np.generic):
        # A copy: JAX may go on using the memory, while the caller goes on changing it.
        return _converted(np.array(value), dtype or hint)
    if isinstance(value, TensorShape):
        return np.asarray(value.as_list(), (dtype or _dtypes.int32).dtype)
    array = _parsed(value)
    if dtype is not None and not array.size:
        return np.empty(array.shape, object if dtype is _dtypes.string else dtype.dtype)
    first = _first_leaf(value)
    if hasattr(first, "__array__") and not is_of_numpy(first):
        return _converted(array, dtype or hint or _dtypes.known_dtype(np.asarray(first).dtype))
    wanted = dtype or hint
    if wanted is not None and _are_integers_beyond_64_bits(array, value, wanted):
        return np.array(value, object).astype(wanted.dtype)
    natural = _natural_type(array, value)
    if dtype is None and hint is not None and _fits(natural, hint):
        dtype = hint
    if dtype is None and natural is _dtypes.float32:
        _check_float32(array, value)
    if dtype is None and isinstance(first, bool | np.bool_) and natural is not _dtypes.bool_:
        raise ValueError(_MIXED.format(value))
    if dtype is not None and not _fits(natural, dtype):
        raise TypeError(f"Cannot convert {value!r} to EagerTensor of dtype {dtype.name}")
    return _converted(array, dtype or natural)


def _parsed(value: Any) -> np.ndarray:
    try:
        array = np.array(list(value) if isinstance(value, range) else value)
    except UnicodeDecodeError:  # Python's strings beside bytes.
        return np.array(value, object)
    except ValueError:
        raise ValueError(f"Can't convert non-rectangular Python sequence to Tensor: {value!r}.") from None
    # NumPy makes texts of whatever is beside one, and cuts zeros from the ends of bytes; of large and of small kinds of integers
    # together it makes floats.
    if array.dtype.kind in "US":
        return np.array(value, object)
    if array.dtype.kind == "f" and isinstance(_first_leaf(value), int | np.integer):
        return _exact_integers(array, value)
    return array


def _exact_integers(array: np.ndarray, value: Any) -> np.ndarray:
    items = np.array(value, object)
    if not all(isinstance(item, int | np.integer) for item in items.flat):
        return array
    return items.astype(np.int64) if _INT64.min <= items.min() and items.max() <= _INT64.max else items


def is_of_numpy(leaf: Any) -> bool:
    """Whether it is a NumPy number or array, and no tensor."""
    return isinstance(leaf, np.generic) or type(leaf) is np.ndarray


def _natural_type(array: np.ndarray, value: Any) -> DType:
    if not array.size:
        return _dtypes.float32
    kind, first = array.dtype.kind, _first_leaf(value)
    if is_of_numpy(first) and first.dtype.kind not in "iubcSU":
        return _dtypes.known_dtype(first.dtype)
    if kind == "O" and np.asarray(first).dtype.kind in "US":
        return _dtypes.string
    if kind == "O" and any(isinstance(item, str | bytes) for item in array.flat):
        raise ValueError(_MIXED.format(value))
    if (kind == "u" and array.max() > _INT64.max) or (kind == "O" and isinstance(first, int | np.integer)):
        raise ValueError(_OUT_OF_RANGE.format(value))
    if kind != "u" and kind not in _PYTHON_TYPES:
        raise ValueError(
            f"Attempt to convert a value ({value!r}) with an unsupported type ({type(value)}) to a Tensor."
        )
    if kind in "iu":
        return _dtypes.int64 if array.min() < _INT32.min or array.max() > _INT32.max else _dtypes.int32
    return _PYTHON_TYPES[kind]


def _are_integers_beyond_64_bits(array: np.ndarray, value: Any, wanted: DType) -> bool:
    """Whether some of Python's integers fit no int64, but a type that is asked for: uint64, or a floating one."""
    is_unsigned = wanted is _dtypes.uint64
    if not array.size or not (is_unsigned or wanted.is_floating) or array.dtype.kind not in "uiO":
        return False
    if array.dtype.kind == "i" and not (is_unsigned and array.min() < 0):
        return False
    items = list(np.array(value, object).flat)
    if not all(type(item) is int for item in items):
        return False
    if is_unsigned and not all(0 <= item <= _UINT64_MAX for item in items):
        raise ValueError(_OUT_OF_RANGE.format(value))
    return True


def _check_float32(array: np.ndarray, value: Any) -> None:
    """Raise TensorFlow's ValueError if a finite number of Python's would become infinite in the type that is chosen for it."""
    if (
        array.size
        and (np.abs(array) > _FLOAT32_MAX).any()
        and (np.isfinite(array) & (np.abs(array) > _FLOAT32_MAX)).any()
    ):
        raise ValueError(
            f"Can't convert Python sequence with a value out of range for a double-precision float: {value!r}. "
            "Name a type that holds it: dtype=tf.float64."
        )


def _fits(natural: DType, wanted: DType) -> bool:
    if _dtypes.string in (natural, wanted):
        return natural is wanted
    return natural.kind in _FITS[wanted.kind]


def _converted(array: np.ndarray, dtype: Any) -> np.ndarray:
    if array.dtype.kind in "SUO":
        return _texts(array, dtype)
    if dtype is _dtypes.string:
        raise TypeError(f"Cannot convert {array!r} to EagerTensor of dtype string")
    return array if not isinstance(dtype, DType) else array.astype(dtype.dtype)


def _texts(array: np.ndarray, dtype: DType | None) -> np.ndarray:
    if dtype not in (None, _dtypes.string):
        raise ValueError(f"Cannot convert strings ({array!r}) to a tensor of dtype {dtype.name}.")
    items = array.ravel().tolist()
    texts = np.empty(len(items), object)
    texts[:] = items if set(map(type, items)) <= {bytes} else list(map(_text, items))
    return texts.reshape(array.shape)


def _text(item: Any) -> bytes:
    if not isinstance(item, str | bytes):
        raise ValueError(f"Attempt to convert a value ({item!r}) with an unsupported type ({type(item)}) to a Tensor.")
    return item.encode() if isinstance(item, str) else bytes(item)


def _first_leaf(value: Any) -> Any:
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return value
