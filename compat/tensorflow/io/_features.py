"""What is wanted of serialized examples: `tf.io.FixedLenFeature` and its kin."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError
from tfdist_jax.compat.tensorflow._tensors._dtypes import DType, as_dtype
from tfdist_jax.compat.tensorflow._tensors._host_values import host_value
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape
from tfdist_jax.compat.tensorflow.io._example_columns import KINDS


class FixedLenFeature(NamedTuple):
    """Drop-in for `tf.io.FixedLenFeature`: a tensor of one shape in all examples.

    Attributes:
        shape: Its shape.
        dtype: float32, int64 or string.
        default_value: What it is where an example does not have it; None if each must.
    """

    shape: Any
    dtype: Any
    default_value: Any = None


class VarLenFeature(NamedTuple):
    """Drop-in for `tf.io.VarLenFeature`: any number of values, as a sparse tensor.

    Attributes:
        dtype: float32, int64 or string.
    """

    dtype: Any


class FixedLenSequenceFeature(NamedTuple):
    """Drop-in for `tf.io.FixedLenSequenceFeature`: any number of tensors of one shape, filled up to the most that an example has.

    Attributes:
        shape: The shape of one.
        dtype: float32, int64 or string.
        allow_missing: Whether examples may have none.
        default_value: What fills up; 0 or "" if None.
    """

    shape: Any
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None


class SparseFeature(NamedTuple):
    """Drop-in for `tf.io.SparseFeature`: a sparse tensor whose indices and values are two features.

    Attributes:
        index_key: The key of the indices; of several, one for each dimension.
        value_key: The key of the values.
        dtype: float32, int64 or string.
        size: The size of the tensor; of several dimensions, a list.
        already_sorted: Whether indices rise in each example.
    """

    index_key: Any
    value_key: str
    dtype: Any
    size: Any
    already_sorted: bool = False


def kind_of(dtype: Any) -> int:
    """Return what a feature of a type holds.

    Raises:
        InvalidArgumentError: If no feature holds such values.
    """
    name = as_dtype(dtype).name
    if name not in KINDS:
        raise InvalidArgumentError(
            None, None, f"Features hold float32, int64 or string, got {name}. Parse one of these, and cast it."
        )
    return KINDS[name]


def sizes_of(key: str, feature: FixedLenFeature | FixedLenSequenceFeature) -> tuple[int, ...]:
    """Return the shape of a feature.

    Raises:
        ValueError: If it is not known.
    """
    if feature.shape is None:
        raise ValueError(f"Missing shape for feature {key}. Received feature={feature}.")
    sizes = TensorShape(feature.shape).as_list()
    if sizes[:1] == [None]:
        raise ValueError(
            f"First dimension of shape for feature {key} unknown. Consider using FixedLenSequenceFeature. Received "
            f"feature={feature}."
        )
    known = tuple(size for size in sizes if size is not None)
    if len(known) < len(sizes):
        raise ValueError(f"All dimensions of shape for feature {key} need to be known but received {feature.shape}.")
    return known


def default_of(value: Any, dtype: Any, sizes: Sequence[int] | None = None) -> np.ndarray | None:
    """Return a default value as an array of a shape, if it is given; None if there is none.

    Raises:
        TypeError: If it is of another type.
        InvalidArgumentError: If it is of another shape.
    """
    if value is None:
        return None
    array = np.asarray(host_value(value, as_dtype(dtype)))
    if sizes is None:
        return array
    count = int(np.prod(sizes, dtype=np.int64))
    if array.size != count:
        message = f"Input to reshape is a tensor with {array.size} values, but the requested shape has {count}"
        raise InvalidArgumentError(None, None, message)
    return array.reshape(tuple(sizes))


def numpy_type(dtype: Any) -> Any:
    """Return NumPy's type of a feature's values."""
    known: DType = as_dtype(dtype)
    return object if known.name == "string" else known.as_numpy_dtype
