"""`tf.lookup.StaticHashTable`, `StaticVocabularyTable`: tables that are filled once."""

import itertools
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tfdist_jax.compat.tensorflow._platform._errors import FailedPreconditionError
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._host_part import computes_rows
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.lookup._initializers import TableInitializer
from tfdist_jax.compat.tensorflow.lookup._tables import Table, array_of, hashable
from tfdist_jax.compat.tensorflow.strings._hashing import to_hash_bucket_fast
from tfdist_jax.compat.tensorflow.strings._numbers import as_string


@final
class StaticHashTable(Table):
    """Drop-in for `tf.lookup.StaticHashTable`: looked up on the host; of integers and numbers by compiled functions, too.

    Ref: https://www.tensorflow.org/api_docs/python/tf/lookup/StaticHashTable
    """

    def __init__(
        self,
        initializer: TableInitializer,
        default_value: Any,
        name: str | None = None,
        experimental_is_anonymous: bool = False,
    ) -> None:
        """Fill the table.

        Args:
            initializer: What it is filled from.
            default_value: The value of keys that are not there, a scalar.
            name: The table's name.
            experimental_is_anonymous: Accepted: tables are their own.

        Raises:
            TypeError: If `default_value` is of another type than the values.
            ValueError: If it is no scalar.
            FailedPreconditionError: If a key has two values.
        """
        super().__init__(name or "hash_table", initializer.key_dtype, initializer.value_dtype)
        self._default = convert_to_tensor(default_value, self.value_dtype)
        if self._default.ndim:
            raise ValueError(f"Shapes {tuple(self._default.shape)} and () are not compatible")
        self._rows: dict[Any, int] = {}
        self._keys = np.empty(0, object if self.key_dtype is _dtypes.string else self.key_dtype.as_numpy_dtype)
        # At the end what -1 finds.
        self._values = np.asarray(self._default).reshape(1)
        initializer.initialize(self)

    def fill(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Take keys `[n]` and their values `[n]`, which stay.

        Raises:
            FailedPreconditionError: If a key has two values.
        """
        rows: dict[Any, int] = {}
        for row, key in enumerate(hashable(keys)):
            first = rows.setdefault(key, row)
            if values[first] != values[row]:
                raise FailedPreconditionError(
                    None,
                    None,
                    f"HashTable has different value for same key. Key {_shown(key)} has {_shown(values[first])} and trying to add "
                    f"value {_shown(values[row])}",
                )
        places = np.fromiter(rows.values(), np.int64, len(rows))
        self._rows = dict(zip(rows, range(len(places)), strict=True))
        self._keys = keys[places]
        self._values = np.append(values[places], np.asarray(self._default))

    @property
    def default_value(self) -> Any:
        """The value of keys that are not there."""
        return self._default

    def size(self, name: str | None = None) -> Any:
        return convert_to_tensor(np.int64(len(self._rows)))

    def export(self, name: str | None = None) -> tuple[Any, Any]:
        """Return all keys `[n]` and their values `[n]`."""
        values = self._values[:-1].astype(self._values.dtype)
        return convert_to_tensor(self._keys), convert_to_tensor(values)

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """Return the values of keys, of the keys' shape; the default value for those that are not there.

        Args:
            keys: A tensor of the keys' type, also a sparse or ragged one.
            name: Unused.

        Raises:
            TypeError: If it is of another type.
        """
        return self._values_of(self._checked(keys), lambda tensor: self._on_host(self._find, tensor))

    @computes_rows
    def _find(self, keys: Any) -> Any:
        if isinstance(keys, Tracer) and self._values.dtype != object:
            return self._find_in_program(keys)
        array = array_of(keys)
        rows = np.fromiter(map(self._rows.get, hashable(array), itertools.repeat(-1)), np.int64, array.size)
        found = self._values[rows].reshape(array.shape)
        return HostTensor.of(found) if found.dtype == object else convert_to_tensor(found)

    def _find_in_program(self, keys: jax.Array) -> jax.Array:
        order = np.argsort(self._keys, kind="stable")
        known = np.append(self._keys[order], self._keys[order][-1:]) if len(order) else np.zeros(1, self._keys.dtype)
        places = np.append(order, -1)
        at = jnp.searchsorted(jnp.asarray(known[: len(order)]), keys) if len(order) else jnp.zeros(keys.shape, int)
        is_there = (jnp.asarray(known)[at] == keys) & (at < len(order))
        return jnp.asarray(self._values)[jnp.where(is_there, jnp.asarray(places)[at], len(order))]


def _shown(value: Any) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


@final
class StaticVocabularyTable(Table):
    """Drop-in for `tf.lookup.StaticVocabularyTable`: keys that are not there get a number by their hash.

    Ref: https://www.tensorflow.org/api_docs/python/tf/lookup/StaticVocabularyTable
    """

    def __init__(
        self,
        initializer: TableInitializer | None,
        num_oov_buckets: int,
        lookup_key_dtype: Any = None,
        name: str | None = None,
        experimental_is_anonymous: bool = False,
    ) -> None:
        """Fill the table.

        Args:
            initializer: What it is filled from: int64 numbers of strings or integers. None for hashes alone.
            num_oov_buckets: How many numbers there are, behind those of the table, for keys that are not there.
            lookup_key_dtype: The type of the keys that are looked up: tf.string or an integer one. The initializer's if None.
            name: The table's name.
            experimental_is_anonymous: Accepted: tables are their own.

        Raises:
            TypeError: If the values are not int64, or keys of another kind.
            ValueError: If there are no buckets.
        """
        if num_oov_buckets <= 0:
            raise ValueError("`num_oov_buckets` must be > 0; use StaticHashTable.")
        if initializer is not None and initializer.value_dtype is not _dtypes.int64:
            raise TypeError(f"Invalid `value_dtype`, expected {_dtypes.int64} but got {initializer.value_dtype}.")
        own = _dtypes.string if initializer is None else initializer.key_dtype
        wanted = own if lookup_key_dtype is None else as_dtype(lookup_key_dtype)
        if (wanted is _dtypes.string) != (own is _dtypes.string) or not (wanted is own or wanted.is_integer):
            raise TypeError(f"Invalid `key_dtype`: the table has {own!r}, and {wanted!r} is to be looked up.")
        super().__init__(name or "string_to_index_table", wanted, _dtypes.int64)
        self._table = None if initializer is None else StaticHashTable(initializer, -1)
        self._num_oov_buckets = num_oov_buckets

    def size(self, name: str | None = None) -> Any:
        """Return how many numbers there are: those of the table and the buckets, int64."""
        return convert_to_tensor(np.int64(self._first_bucket + self._num_oov_buckets))

    @property
    def _first_bucket(self) -> int:
        return 0 if self._table is None else int(self._table.size())

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """Return the numbers of keys, int64 of the keys' shape.

        Args:
            keys: A tensor of the keys' type, also a sparse or ragged one.
            name: Unused.

        Raises:
            TypeError: If it is of another type.
        """
        return self._values_of(self._checked(keys), lambda tensor: self._on_host(self._find, tensor))

    @computes_rows
    def _find(self, keys: Any) -> Any:
        array = array_of(keys)
        texts = array if array.dtype == object else np.asarray(as_string(array), object)
        buckets = np.asarray(to_hash_bucket_fast(HostTensor.of(texts), self._num_oov_buckets)) + self._first_bucket
        if self._table is None:
            return convert_to_tensor(buckets)
        ids = np.asarray(self._table.lookup(convert_to_tensor(array.astype(self._table.key_dtype.as_numpy_dtype))))
        return convert_to_tensor(np.where(ids < 0, buckets, ids))
