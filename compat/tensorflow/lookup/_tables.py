"""What tables have in common: keys of one type, for which there are values of another."""

import abc
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import value_of
from tfdist_jax.compat.tensorflow._tensors._dtypes import DType, as_dtype
from tfdist_jax.compat.tensorflow._tensors._host_part import note_on_host
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, is_tensor

_NOT_KNOWN = (
    "A table is looked up on the host, and takes a number here that the compiled function computes. Look it up outside of the "
    "function, or use a `StaticHashTable` of integers and numbers, which the program can look up itself."
)


class Table(abc.ABC):
    """A table of keys and values.

    Attributes:
        name: Its name.
        key_dtype: The keys' type.
        value_dtype: The values' type.
    """

    # Whether what it holds changes, so that functions that are compiled look it up in each run.
    _changes = False
    lookup: Callable[..., Any]

    def __init__(self, name: str, key_dtype: Any, value_dtype: Any) -> None:
        self.name = name
        self.key_dtype: DType = as_dtype(key_dtype)
        self.value_dtype: DType = as_dtype(value_dtype)

    @property
    def resource_handle(self) -> "Table":
        """The table itself."""
        return self

    def __getitem__(self, keys: Any) -> Any:
        """Look `keys` up."""
        return self.lookup(keys)

    @abc.abstractmethod
    def size(self, name: str | None = None) -> Any:
        """Return how many entries there are, int64."""

    def _on_host(self, function: Callable[..., Any], *args: Any, has_effect: bool = False) -> Any:
        """Call a function of the host: now, or in each run of the function that is being traced."""
        result = note_on_host(function, args, {}, always=self._changes, has_effect=has_effect)
        return function(*args) if result is NotImplemented else result

    def _checked(self, keys: Any) -> Any:
        """Return keys as a tensor, a sparse or a ragged one.

        Raises:
            TypeError: If they are of another type than the table's.
        """
        is_composite = isinstance(keys, SparseTensor) or hasattr(keys, "with_flat_values")
        tensor = keys if is_composite or is_tensor(keys) else convert_to_tensor(keys, self.key_dtype)
        if as_dtype(tensor.dtype) != self.key_dtype:
            raise TypeError(f"Dtype of argument `keys` must be {self.key_dtype}, received: {as_dtype(tensor.dtype)}")
        return tensor

    def _values_of(self, keys: Any, find: Callable[[Any], Any]) -> Any:
        """Return what `find` gives for a tensor of keys, also of the values of a sparse or ragged one."""
        if isinstance(keys, SparseTensor):
            return SparseTensor(keys.indices, find(keys.values), keys.dense_shape)
        return keys.with_flat_values(find(keys.flat_values)) if hasattr(keys, "with_flat_values") else find(keys)


def array_of(tensor: Any) -> np.ndarray:
    """Return a tensor as an array of numbers or bytes objects.

    Raises:
        ConcreteValueRequiredError: If a compiled function computes it.
    """
    return np.asarray(value_of(tensor, _NOT_KNOWN) if isinstance(tensor, jax.Array) else tensor)


def hashable(array: np.ndarray) -> list[Any]:
    """Return the elements of an array as keys of a dictionary."""
    return array.reshape(-1).tolist()
