"""TensorFlow's element types, interchangeable with NumPy's and JAX's."""

from typing import Any, final

import ml_dtypes
import numpy as np

# TensorFlow's numbers for its types, as in its protocol buffers.
_NUMBERS = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "string": 7, "complex64": 8,
    "int64": 9, "bool": 10, "bfloat16": 14, "uint16": 17, "complex128": 18, "float16": 19, "uint32": 22, "uint64": 23,
}  # fmt: skip
_LIMITS = {"uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"}


@final
class DType:
    """The type of a tensor's elements, such as `tf.float32`.

    Equal to, and as a dictionary key the same as, NumPy's dtype; accepted wherever NumPy, JAX or Keras take one.
    Attributes that are not listed here are those of the NumPy dtype. `tf.string` stands for NumPy's `object`.
    See https://www.tensorflow.org/api_docs/python/tf/dtypes/DType. Differences: no quantized, resource or
    variant types, and no reference types (`base_dtype` is the type itself).

    Attributes:
        name: The name, such as `"float32"`.
        dtype: The NumPy dtype. NumPy and JAX look for this attribute.
    """

    def __init__(self, name: str, numpy_type: Any) -> None:
        """Name a NumPy type."""
        self.name = name
        self.dtype = np.dtype(numpy_type)

    @property
    def as_numpy_dtype(self) -> type:
        """The NumPy scalar type, such as `np.float32`."""
        return self.dtype.type if self.name != "string" else object

    @property
    def as_datatype_enum(self) -> int:
        """TensorFlow's number for the type."""
        return _NUMBERS[self.name]

    @property
    def base_dtype(self) -> "DType":
        """The type itself: there are no reference types."""
        return self

    @property
    def real_dtype(self) -> "DType":
        """The type of a complex number's real part; of others, the type itself."""
        return {"complex64": float32, "complex128": float64}.get(self.name, self)

    @property
    def is_floating(self) -> bool:
        """Whether it is a real floating-point type."""
        return self.dtype.kind == "f" or self.name == "bfloat16"

    @property
    def is_integer(self) -> bool:
        """Whether it is an integer type."""
        return self.dtype.kind in "iu"

    @property
    def is_unsigned(self) -> bool:
        """Whether it is an unsigned integer type."""
        return self.dtype.kind == "u"

    @property
    def is_bool(self) -> bool:
        """Whether it is the boolean type."""
        return self.dtype.kind == "b"

    @property
    def is_complex(self) -> bool:
        """Whether it is a complex type."""
        return self.dtype.kind == "c"

    @property
    def is_numeric(self) -> bool:
        """Whether its elements are numbers."""
        return self.name not in ("bool", "string")

    @property
    def is_quantized(self) -> bool:
        """False: there are no quantized types."""
        return False

    @property
    def is_numpy_compatible(self) -> bool:
        """True: every type here has a NumPy type."""
        return True

    @property
    def size(self) -> int:
        """Bytes for one element; 0 for strings."""
        return self.dtype.itemsize if self.name != "string" else 0

    @property
    def min(self) -> Any:
        """The smallest finite value."""
        return self._info("minimum").min

    @property
    def max(self) -> Any:
        """The largest finite value."""
        return self._info("maximum").max

    @property
    def limits(self) -> tuple[Any, Any]:
        """The range that images of this type use: (0, 1) for floats, (0, max) for integers."""
        if self.name in ("float32", "float64"):
            return 0, 1
        if self.name == "bool":
            return 0, True
        if self.name in _LIMITS:
            return 0, self.max
        raise ValueError(f"{self!r} does not have defined limits.")

    def is_compatible_with(self, other: Any) -> bool:
        """Whether values of the other type can stand for this one: the types are equal."""
        return self == as_dtype(other)

    def is_subtype_of(self, other: Any) -> bool:
        """Whether the types are equal."""
        return self == other

    def _info(self, which: str) -> Any:
        if self.is_floating:
            return ml_dtypes.finfo(self.dtype)
        if self.is_integer:
            return np.iinfo(self.dtype)
        raise TypeError(f"Cannot find {which} value of {self!r}.")

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the NumPy dtype, so that code that expects one goes on working."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.dtype, name)

    def __eq__(self, other: object) -> bool:
        """Whether `other` is the same type, in whatever way it is written."""
        if self is other:
            return True
        try:
            return self.name == as_dtype(other).name
        except TypeError:
            return False

    def __ne__(self, other: object) -> bool:
        """Whether `other` is another type or none."""
        return not self == other

    def __hash__(self) -> int:
        """Hash as the NumPy dtype, which is equal."""
        return hash(self.dtype)

    def __int__(self) -> int:
        """Return TensorFlow's number for the type."""
        return self.as_datatype_enum

    def __repr__(self) -> str:
        """Write it as TensorFlow does inside other objects: `tf.float32`."""
        return f"tf.{self.name}"

    def __str__(self) -> str:
        """Write it as TensorFlow prints it: `<dtype: 'float32'>`."""
        return f"<dtype: {self.name!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by name, so that there is one object per type."""
        return as_dtype, (self.name,)


bfloat16 = DType("bfloat16", ml_dtypes.bfloat16)
float16 = half = DType("float16", np.float16)
float32 = DType("float32", np.float32)
float64 = double = DType("float64", np.float64)
int8 = DType("int8", np.int8)
int16 = DType("int16", np.int16)
int32 = DType("int32", np.int32)
int64 = DType("int64", np.int64)
uint8 = DType("uint8", np.uint8)
uint16 = DType("uint16", np.uint16)
uint32 = DType("uint32", np.uint32)
uint64 = DType("uint64", np.uint64)
complex64 = DType("complex64", np.complex64)
complex128 = DType("complex128", np.complex128)
bool_ = DType("bool", np.bool_)
string = DType("string", object)

_ALL = (
    bfloat16, float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64, complex64,
    complex128, bool_, string,
)  # fmt: skip
_BY_NAME = {dtype.name: dtype for dtype in _ALL} | {"half": float16, "float": float32, "double": float64}
_BY_NUMBER = {number: _BY_NAME[name] for name, number in _NUMBERS.items()}
_BY_NUMPY = {dtype.dtype: dtype for dtype in _ALL}
_BY_PYTHON = {float: float32, bool: bool_, object: string}


def as_dtype(type_value: Any) -> DType:
    """Return the type that `type_value` names.

    Args:
        type_value: A `DType`, its name or number, a NumPy or JAX type, or Python's `float` or `bool`.

    Raises:
        TypeError: If there is no such type.

    Example:
        >>> as_dtype("half")
        tf.float16
    """
    if isinstance(type_value, DType):
        return type_value
    found = _named(type_value) or _numpy(type_value)
    if found is None:
        raise TypeError(f"Cannot convert the argument `type_value`: {type_value!r} to a TensorFlow DType.")
    return found


def known_dtype(dtype: Any) -> Any:
    """Return the object for a NumPy dtype; types that TensorFlow lacks, such as random keys', are returned as is."""
    return _BY_NUMPY.get(dtype, dtype)


def _named(value: Any) -> DType | None:
    if isinstance(value, str):
        return _BY_NAME.get(value)
    if isinstance(value, type):
        return _BY_PYTHON.get(value)
    return _BY_NUMBER.get(value) if isinstance(value, int) else None


def _numpy(value: Any) -> DType | None:
    """Return the type for a NumPy dtype or scalar type, or for JAX's stand-ins for them."""
    if isinstance(value, np.dtype):
        dtype = value
    elif isinstance(value, type) and issubclass(value, np.generic | ml_dtypes.bfloat16):
        dtype = np.dtype(value)
    else:
        # `jnp.float32` is neither a dtype nor a type: it has a dtype. A tensor has one too, but is none.
        dtype = getattr(value, "dtype", None) if callable(value) else None
    if not isinstance(dtype, np.dtype):
        return None
    return string if dtype.kind in "SUOT" else _BY_NUMPY.get(dtype)
