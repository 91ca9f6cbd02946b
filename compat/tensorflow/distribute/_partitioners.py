"""`tf.distribute.experimental.partitioners`: into how many parts a parameter server's variable is cut."""

import math
import operator
from typing import Any, final

from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape

_DEFAULT_SHARD_BYTES = 256 << 10


class Partitioner:
    """Base of what says into how many parts a variable is cut, along each of its axes.

    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/partitioners/Partitioner
    """

    def __call__(self, shape: Any, dtype: Any, axis: int = 0) -> Any:
        """Return the numbers of parts.

        Args:
            shape: The variable's shape, a `tf.TensorShape`.
            dtype: Its type.
            axis: The axis to cut. Variables of parameter servers are cut along their first one.

        Returns:
            A number for each axis, 1 for those that stay whole.
        """
        raise NotImplementedError(
            "A partitioner says by `__call__(shape, dtype, axis=0)` into how many parts each axis is cut: define it, or use "
            "FixedShardsPartitioner, MinSizePartitioner or MaxSizePartitioner."
        )


@final
class FixedShardsPartitioner(Partitioner):
    """Cuts variables into a given number of parts, or into rows where there are fewer of them.

    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/partitioners/FixedShardsPartitioner

    Example:
        >>> import tfdist_jax.compat.tensorflow as tf
        >>> tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)(tf.TensorShape([10, 3]), tf.float32)
        [2, 1]
    """

    def __init__(self, num_shards: int) -> None:
        """Cut into `num_shards` parts.

        Raises:
            TypeError: If that is no integer.
        """
        try:
            self._num_shards = operator.index(num_shards)
        except TypeError:
            raise TypeError(f"`num_shards` must be an integer, got {num_shards!r}.") from None

    def __call__(self, shape: Any, dtype: Any, axis: int = 0) -> list[int]:
        """Return the numbers of parts of a variable.

        Raises:
            AttributeError: If `shape` is no `tf.TensorShape`.
            TypeError: If it has unknown sizes.
            IndexError: If it has no such axis.
        """
        size = _size(shape, axis, otherwise=(AttributeError, TypeError, IndexError))
        return _cut(shape, axis, min(self._num_shards, size))


@final
class MinSizePartitioner(Partitioner):
    """Cuts variables into as many parts as can be, up to `max_shards`, if each is to have some bytes at least.

    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/partitioners/MinSizePartitioner

    Example:
        >>> import tfdist_jax.compat.tensorflow as tf
        >>> tf.distribute.experimental.partitioners.MinSizePartitioner(4, max_shards=2)(tf.TensorShape([6, 1]), tf.float32)
        [2, 1]
    """

    def __init__(
        self, min_shard_bytes: int = _DEFAULT_SHARD_BYTES, max_shards: int = 1, bytes_per_string: int = 16
    ) -> None:
        """Give each part this many bytes at least, where there are more than one.

        Args:
            min_shard_bytes: The bytes of a part.
            max_shards: How many parts there are at most.
            bytes_per_string: What a string counts.

        Raises:
            ValueError: If one of them is not positive.
        """
        _must_be_positive(min_shard_bytes=min_shard_bytes, max_shards=max_shards, bytes_per_string=bytes_per_string)
        self._min_shard_bytes, self._max_shards, self._bytes_per_string = min_shard_bytes, max_shards, bytes_per_string

    def __call__(self, shape: Any, dtype: Any, axis: int = 0) -> list[int]:
        """Return the numbers of parts of a variable.

        Raises:
            AttributeError: If `shape` is no `tf.TensorShape`.
            TypeError: If it has unknown sizes.
            ValueError: If it has no such axis.
        """
        size = _size(shape, axis, otherwise=(AttributeError, TypeError, ValueError))
        wanted = math.ceil(math.prod(shape) * _bytes_of(dtype, self._bytes_per_string) / self._min_shard_bytes)
        return _cut(shape, axis, max(1, min(size, self._max_shards, wanted)))


@final
class MaxSizePartitioner(Partitioner):
    """Cuts variables into as few parts as can be, if each is to have some bytes at most.

    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/partitioners/MaxSizePartitioner

    Example:
        >>> import tfdist_jax.compat.tensorflow as tf
        >>> tf.distribute.experimental.partitioners.MaxSizePartitioner(max_shard_bytes=4)(tf.TensorShape([6, 1]), tf.float32)
        [6, 1]
    """

    def __init__(self, max_shard_bytes: int, max_shards: int | None = None, bytes_per_string: int = 16) -> None:
        """Give each part this many bytes at most, or one row where that has more.

        Args:
            max_shard_bytes: The bytes of a part.
            max_shards: How many parts there are at most, even if they have more bytes then. None for any number.
            bytes_per_string: What a string counts.

        Raises:
            ValueError: If one of them is not positive.
        """
        _must_be_positive(
            max_shard_bytes=max_shard_bytes, max_shards=max_shards or 1, bytes_per_string=bytes_per_string
        )
        self._max_shard_bytes, self._max_shards, self._bytes_per_string = max_shard_bytes, max_shards, bytes_per_string

    def __call__(self, shape: Any, dtype: Any, axis: int = 0) -> list[int]:
        """Return the numbers of parts of a variable.

        Raises:
            ValueError: If `shape` is no `tf.TensorShape` whose sizes are known.
            IndexError: If it has no such axis.
            ZeroDivisionError: If the variable has no elements.
        """
        size = _size(shape, axis, otherwise=(ValueError, ValueError, IndexError))
        count = math.prod(shape)
        if not count:
            raise ZeroDivisionError(
                f"A variable of shape {shape} has no elements, and so no parts of some bytes: make it without a partitioner."
            )
        row_bytes = count / size * _bytes_of(dtype, self._bytes_per_string)
        parts = math.ceil(size / max(1, math.floor(self._max_shard_bytes / row_bytes)))
        return _cut(shape, axis, min(self._max_shards or parts, parts))


def _must_be_positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"Argument `{name}` must be positive. Received: {number}")


_Errors = tuple[type[Exception], type[Exception], type[Exception]]


def _size(shape: Any, axis: int, *, otherwise: _Errors) -> int:
    """Return the size of an axis; raise TensorFlow's error for what is no shape, for unknown sizes, and for an axis that is not there."""
    no_shape, unknown, no_axis = otherwise
    if not isinstance(shape, TensorShape):
        raise no_shape(
            f"A partitioner takes the shape as a tf.TensorShape, got {shape!r}: give `tf.TensorShape(shape)`."
        )
    if not shape.is_fully_defined():
        raise unknown(f"A partitioner needs to know all sizes of a variable, got the shape {shape}.")
    if not -len(shape) <= axis < len(shape):
        raise no_axis(f"Cannot partition variable along axis {axis} when shape is only {shape}")
    return int(shape[axis])


def _cut(shape: Any, axis: int, parts: int) -> list[int]:
    counts = [1] * len(shape)
    counts[axis] = parts
    return counts


def _bytes_of(dtype: Any, bytes_per_string: int) -> int:
    known = as_dtype(dtype)
    return bytes_per_string if known.name == "string" else known.size
