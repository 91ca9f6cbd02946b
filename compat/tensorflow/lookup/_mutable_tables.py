"""`tf.lookup.experimental.MutableHashTable`, `DenseHashTable`: tables that change."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._tensors._dtypes import DType, as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.lookup._tables import Table, array_of, hashable


@final
class TableColumn:
    """The keys or the values of a table, as checkpoints save them."""

    def __init__(self, table: "MutableTable", place: int) -> None:
        self._table = table
        self._place = place

    @property
    def dtype(self) -> DType:
        """Its type."""
        return (self._table.key_dtype, self._table.value_dtype)[self._place]

    def read(self) -> np.ndarray:
        """Return it: `[n, ...]`, of strings as objects."""
        return np.asarray(self._table.export()[self._place])

    def write(self, array: np.ndarray) -> None:
        """Take what has been saved; the table has other entries when it has both its columns."""
        self._table.restore(self._place, array)


class MutableTable(Table):
    """A table whose entries are put in and taken out, also by functions that are compiled, in each run.

    Attributes:
        columns: What checkpoints save of it, by the names that TensorFlow has for it; nothing if it is not to be saved.
        holds_buckets: Whether TensorFlow saves the places of its entries, and not these alone.
    """

    _changes = True
    holds_buckets = False

    def __init__(self, name: str, types: tuple[Any, Any], default_value: Any, *, is_saved: bool) -> None:
        super().__init__(name, *types)
        self._default = convert_to_tensor(default_value, self.value_dtype)
        self._entries: dict[Any, Any] = {}
        names = ("table-keys", "table-values") if is_saved else ()
        self.columns = {name: TableColumn(self, place) for place, name in enumerate(names)}
        self._restored: dict[int, np.ndarray] = {}

    def restore(self, place: int, column: np.ndarray) -> None:
        """Take a column that has been saved, the keys (0) or the values (1)."""
        self._restored[place] = column
        if len(self._restored) == len(self.columns):
            keys, values = self._restored.pop(0), self._restored.pop(1)
            rest = np.shape(self._default)
            rows = values.reshape((len(values), *rest))
            self._entries = dict(
                zip(hashable(keys), (rows[i].copy() if rest else rows[i] for i in range(len(rows))), strict=True)
            )

    def size(self, name: str | None = None) -> Any:
        return self._on_host(self._size)

    def _size(self) -> Any:
        return convert_to_tensor(np.int64(len(self._entries)))

    def lookup(self, keys: Any, dynamic_default_values: Any = None, name: str | None = None) -> Any:
        """Return the values of keys, of the keys' shape and behind it the values'.

        Args:
            keys: A tensor of the keys' type, also a sparse or ragged one.
            dynamic_default_values: Values for keys that are not there: one for each, or one for all. The default value if None.
            name: Unused.

        Raises:
            TypeError: If it is of another type.
        """
        find = lambda tensor: self._on_host(self._find, tensor, dynamic_default_values)
        return self._values_of(self._checked(keys), find)

    def _find(self, keys: Any, defaults: Any) -> Any:
        array = array_of(keys)
        self._check_keys(array)
        given = self._default if defaults is None else convert_to_tensor(defaults, self.value_dtype)
        default = np.asarray(array_of(given))
        rest = np.shape(self._default)
        spread = np.broadcast_to(
            default, (*array.shape, *rest) if default.shape != array.shape + rest else default.shape
        )
        found = np.array(spread)
        rows = found.reshape((array.size, *rest))
        for row, key in enumerate(hashable(array)):
            if key in self._entries:
                rows[row] = self._entries[key]
        return HostTensor.of(found) if found.dtype == object else convert_to_tensor(found)

    def _check_keys(self, keys: np.ndarray) -> None:
        """Raise if a key cannot be in the table."""

    def insert(self, keys: Any, values: Any, name: str | None = None) -> None:
        """Put entries in, in place of those with the same keys.

        Args:
            keys: A tensor of the keys' type.
            values: Their values, of the keys' shape and behind it that of the default value.
            name: Unused.

        Raises:
            ValueError: If one is a tensor of another type.
            InvalidArgumentError: If their shapes do not fit.
        """
        tensors = [
            self._converted("keys", keys, self.key_dtype),
            self._converted("values", values, self.value_dtype),
        ]
        self._on_host(self._insert, *tensors, has_effect=True)

    def _converted(self, what: str, value: Any, dtype: Any) -> Any:
        try:
            return convert_to_tensor(value, dtype)
        except ValueError as error:
            raise ValueError(f"{what}: {error}") from None

    def _insert(self, keys: Any, values: Any) -> None:
        array, new = array_of(keys), array_of(values)
        self._check_keys(array)
        rest = np.shape(self._default)
        if new.shape != array.shape + rest:
            raise invalid(f"Expected shape {_sizes(array.shape + rest)} for value, got {_sizes(new.shape)}")
        rows = new.reshape((array.size, *rest))
        self._entries.update(
            zip(hashable(array), (rows[i].copy() if rest else rows[i] for i in range(array.size)), strict=True)
        )

    def remove(self, keys: Any, name: str | None = None) -> None:
        """Take entries out; keys that are not there are passed over.

        Raises:
            TypeError: If the keys are of another type.
        """
        self._on_host(self._remove, self._checked(keys), has_effect=True)

    def _remove(self, keys: Any) -> None:
        array = array_of(keys)
        self._check_keys(array)
        for key in hashable(array):
            self._entries.pop(key, None)

    def export(self, name: str | None = None) -> tuple[Any, Any]:
        """Return all keys `[n]` and their values `[n, ...]`."""
        return self._on_host(self._export)

    def _export(self) -> tuple[Any, Any]:
        keys = np.empty(
            len(self._entries), self.key_dtype.as_numpy_dtype if self.key_dtype.name != "string" else object
        )
        keys[:] = list(self._entries)
        default = np.asarray(self._default)
        values = np.empty((len(self._entries), *default.shape), default.dtype)
        for row, value in enumerate(self._entries.values()):
            values[row] = value
        return convert_to_tensor(keys), convert_to_tensor(values)


def _sizes(shape: Sequence[int]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"


@final
class MutableHashTable(MutableTable):
    """Drop-in for `tf.lookup.experimental.MutableHashTable`, on the host.

    Ref: https://www.tensorflow.org/api_docs/python/tf/lookup/experimental/MutableHashTable
    """

    def __init__(
        self,
        key_dtype: Any,
        value_dtype: Any,
        default_value: Any,
        name: str = "MutableHashTable",
        checkpoint: bool = True,
        experimental_is_anonymous: bool = False,
    ) -> None:
        """Begin without entries.

        Args:
            key_dtype: The keys' type: integers or strings.
            value_dtype: The values' type.
            default_value: The value of keys that are not there, whose shape all values have.
            name: The table's name.
            checkpoint: Whether checkpoints hold its entries.
            experimental_is_anonymous: Accepted: tables are their own.
        """
        super().__init__(name, (key_dtype, value_dtype), default_value, is_saved=checkpoint)


@final
class DenseHashTable(MutableTable):
    """Drop-in for `tf.lookup.experimental.DenseHashTable`, on the host; it exports its entries, and no empty places.

    Ref: https://www.tensorflow.org/api_docs/python/tf/lookup/experimental/DenseHashTable
    """

    def __init__(
        self,
        key_dtype: Any,
        value_dtype: Any,
        default_value: Any,
        empty_key: Any,
        deleted_key: Any,
        initial_num_buckets: int | None = None,
        name: str = "MutableDenseHashTable",
        checkpoint: bool = True,
        experimental_is_anonymous: bool = False,
    ) -> None:
        """Begin without entries.

        Args:
            key_dtype: The keys' type: integers or strings.
            value_dtype: The values' type.
            default_value: The value of keys that are not there, whose shape all values have.
            empty_key: A key that no entry has.
            deleted_key: Another one.
            initial_num_buckets: Accepted and unused.
            name: The table's name.
            checkpoint: Whether checkpoints hold its entries.
            experimental_is_anonymous: Accepted: tables are their own.

        Raises:
            InvalidArgumentError: If both keys are the same.
        """
        super().__init__(name, (key_dtype, value_dtype), default_value, is_saved=checkpoint)
        keys = [hashable(array_of(convert_to_tensor(key, as_dtype(key_dtype))))[0] for key in (empty_key, deleted_key)]
        if keys[0] == keys[1]:
            raise invalid("Empty and deleted keys cannot be equal")
        self._reserved = dict(zip(keys, ("empty_key", "deleted_key"), strict=True))

    holds_buckets = True

    def restore(self, place: int, column: np.ndarray) -> None:
        super().restore(place, column)
        for key in self._reserved:  # TensorFlow's files have them in each empty place.
            self._entries.pop(key, None)

    def _check_keys(self, keys: np.ndarray) -> None:
        for key in hashable(keys):
            if key in self._reserved:
                raise invalid(f"Using the {self._reserved[key]} as a table key is not allowed")

    def insert_or_assign(self, keys: Any, values: Any, name: str | None = None) -> None:
        """Do as `insert`."""
        self.insert(keys, values)

    def erase(self, keys: Any, name: str | None = None) -> None:
        """Do as `remove`."""
        self.remove(keys)
