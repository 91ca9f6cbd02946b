"""`tf.zeros_initializer` and its kin: callables that make a tensor from a shape and a type."""

import abc
from typing import Any, Self, final

import numpy as np

from tfdist_jax.compat.tensorflow._ops._creation import ones, zeros
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._dtypes import DType, as_dtype
from tfdist_jax.compat.tensorflow._tensors._tensor import constant
from tfdist_jax.compat.tensorflow.random import _samplers

_PARTITION = ("partition_shape", "partition_offset")


class _Initializer(abc.ABC):
    """Makes a tensor from a shape and a type, and says from what it can be made again."""

    @abc.abstractmethod
    def __call__(self, shape: Any, dtype: Any = _dtypes.float32, **kwargs: Any) -> Any:
        """Return a tensor; `partition_shape` in `kwargs` is the shape of a part of it."""

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an equal initializer."""
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return the initializer that `get_config` describes."""
        return cls(**{name: value for name, value in config.items() if name != "dtype"})


def _part(shape: Any, options: dict[str, Any]) -> Any:
    unknown = [name for name in options if name not in _PARTITION]
    if unknown:
        raise TypeError(f"Keyword argument should be one of {list(_PARTITION)}. Received: {unknown[0]}")
    return options.get("partition_shape", shape)


def _allowed(dtype: Any, *, floating: bool, integer: bool) -> DType:
    wanted = as_dtype(dtype)
    if not (wanted.is_floating and floating) and not (wanted.is_integer and integer):
        raise ValueError(f"Expected {'float or integer' if integer else 'float'} dtype, got {wanted!r}.")
    return wanted


def _numbers(dtype: Any) -> DType:
    wanted = as_dtype(dtype)
    if wanted is _dtypes.string:
        raise ValueError(f"Argument `dtype` expected to be numeric or boolean. Received {wanted!r}")
    return wanted


@final
class zeros_initializer(_Initializer):
    """Makes zeros. See https://www.tensorflow.org/api_docs/python/tf/zeros_initializer."""

    def __call__(self, shape: Any, dtype: Any = _dtypes.float32, **kwargs: Any) -> Any:
        """Return zeros of a shape and type."""
        return zeros(_part(shape, kwargs), _numbers(dtype))


@final
class ones_initializer(_Initializer):
    """Makes ones. See https://www.tensorflow.org/api_docs/python/tf/ones_initializer."""

    def __call__(self, shape: Any, dtype: Any = _dtypes.float32, **kwargs: Any) -> Any:
        """Return ones of a shape and type."""
        return ones(_part(shape, kwargs), _numbers(dtype))


@final
class constant_initializer(_Initializer):
    """Makes tensors of given numbers. See https://www.tensorflow.org/api_docs/python/tf/constant_initializer."""

    def __init__(self, value: Any = 0, support_partition: bool = False) -> None:
        """Keep a number, or as many as tensors will have elements.

        Raises:
            TypeError: If `value` is neither a number nor a sequence or array of them.
        """
        if not np.isscalar(value) and not isinstance(value, list | tuple | np.ndarray):
            raise TypeError(f"Invalid type for initial value={value!r} of type: {type(value).__name__}.")
        self.value = value
        self.support_partition = support_partition

    def __call__(self, shape: Any, dtype: Any = None, **kwargs: Any) -> Any:
        """Return the numbers in a shape and, unless it is None, a type."""
        part = _part(shape, kwargs)
        if kwargs and not self.support_partition:
            raise ValueError(f"{type(self).__name__} initializer doesn't support partition-related arguments")
        return constant(self.value, dtype, part)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an equal initializer."""
        return {"value": self.value}


@final
class random_uniform_initializer(_Initializer):
    """Makes evenly distributed numbers.

    See https://www.tensorflow.org/api_docs/python/tf/random_uniform_initializer. With a seed every call gives the same
    numbers.
    """

    def __init__(self, minval: Any = -0.05, maxval: Any = 0.05, seed: int | None = None) -> None:
        """Keep the bounds, of which the upper one is left out."""
        self.minval, self.maxval, self.seed = minval, maxval, seed

    def __call__(self, shape: Any, dtype: Any = _dtypes.float32, **kwargs: Any) -> Any:
        """Return random numbers, floats or integers."""
        wanted = _allowed(dtype, floating=True, integer=True)
        if self.seed is None:
            return _samplers.uniform(_part(shape, kwargs), self.minval, self.maxval, wanted)
        return _samplers.stateless_uniform(_part(shape, kwargs), [self.seed, 0], self.minval, self.maxval, wanted)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an equal initializer."""
        return {"minval": self.minval, "maxval": self.maxval, "seed": self.seed}


@final
class random_normal_initializer(_Initializer):
    """Makes normally distributed numbers.

    See https://www.tensorflow.org/api_docs/python/tf/random_normal_initializer. With a seed every call gives the same
    numbers.
    """

    def __init__(self, mean: Any = 0.0, stddev: Any = 0.05, seed: int | None = None) -> None:
        """Keep the parameters."""
        self.mean, self.stddev, self.seed = mean, stddev, seed

    def __call__(self, shape: Any, dtype: Any = _dtypes.float32, **kwargs: Any) -> Any:
        """Return random floats."""
        wanted = _allowed(dtype, floating=True, integer=False)
        if self.seed is None:
            return _samplers.normal(_part(shape, kwargs), self.mean, self.stddev, wanted)
        return _samplers.stateless_normal(_part(shape, kwargs), [self.seed, 0], self.mean, self.stddev, wanted)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an equal initializer."""
        return {"mean": self.mean, "stddev": self.stddev, "seed": self.seed}
