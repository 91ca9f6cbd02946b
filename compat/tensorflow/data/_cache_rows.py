"""Rows in a cache file: each array of all rows in one piece, which is mapped into memory and read where it is needed."""

import math
from collections.abc import Iterator
from typing import Any, final

import google_crc32c
import numpy as np

from tfdist_jax.compat.tensorflow.data import _elements, _failures, _order
from tfdist_jax.compat.tensorflow.data._cache_file import CacheFile, CacheWriter
from tfdist_jax.compat.tensorflow.data._element_parts import ElementParts

LAYOUT = "rows"

# Of so many bytes there is one checksum.
_CHECKED_BYTES = 1 << 20


@final
class RowWriter:
    """Writes rows to a cache file, in whatever order they come, by the positions that they have in their plan."""

    def __init__(self, file: CacheWriter, parts: ElementParts, order: np.ndarray) -> None:
        """Write the rows at the positions of an order, `[n]` or `[n, k]`; one that is there twice is written once."""
        self._file, self._parts = file, parts
        keys, first, place = np.unique(_order.keys(order), return_index=True, return_inverse=True)
        # Rows lie in the order in which they come first.
        self._keys, self._slots = keys, np.argsort(np.argsort(first))
        self._order = self._slots[place.reshape(-1)]
        self._positions = order[np.sort(first)]
        self._has = np.zeros(len(keys), bool)
        self._has_failed = np.zeros(len(keys), bool)
        self._arrays = [_Array.for_rows(file, spec, len(keys)) for spec in parts.specs]

    def put(self, positions: np.ndarray, rows: Any) -> None:
        """Write the rows at positions, those that are not written yet."""
        slots = self._slots_of(positions)
        if slots is None:
            return  # Of an iteration in another order.
        wanted = np.flatnonzero(~self._has[slots])
        if not len(wanted):
            return
        by_slot = wanted[np.argsort(slots[wanted], kind="stable")]
        slots, columns = slots[by_slot], self._parts.columns(rows)
        ends = np.flatnonzero(np.diff(slots) != 1) + 1
        for places, run in zip(np.split(by_slot, ends), np.split(slots, ends), strict=True):
            for array, column in zip(self._arrays, columns, strict=True):
                array.put(self._file, int(run[0]), _elements.pick(np.asarray(column), places))
        self._has[slots] = True

    def fail(self, position: np.ndarray) -> None:
        """Leave the row at a position, `[1]`, out."""
        slots = self._slots_of(position)
        if slots is not None:
            self._has_failed[slots] = True

    def _slots_of(self, positions: np.ndarray) -> np.ndarray | None:
        wanted = _order.keys(positions)
        places = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        return self._slots[places] if (self._keys[places] == wanted).all() else None

    def missing(self) -> np.ndarray:
        """Return the positions of rows that have neither come nor failed."""
        return self._positions[~(self._has | self._has_failed)]

    def numbers_of(self, positions: np.ndarray) -> np.ndarray | None:
        """Return the numbers in the file of the rows at positions; None if some are not in it."""
        slots = self._slots_of(positions)
        return slots if slots is not None and self._has[slots].all() else None

    @property
    def failed_count(self) -> int:
        """How many elements of the order are errors."""
        return int((~self._has[self._order]).sum())

    def finish(self, index: dict[str, Any]) -> bool:
        """Complete the file; return False if another writer has been faster."""
        order = self._order[self._has[self._order]]
        place = _Array.like(self._file, order)
        place.put(self._file, 0, order)
        described = {
            "order": place.describe(self._file),
            "columns": [array.describe(self._file) for array in self._arrays],
        }
        return self._file.finish({**index, **described, "layout": LAYOUT})

    def discard(self) -> None:
        """Remove what is written."""
        self._file.discard()


@final
class _Array:
    """An array in a file that is being written."""

    def __init__(self, file: CacheWriter, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._dtype, self._shape = dtype, shape
        self._row_bytes = math.prod(shape[1:]) * dtype.itemsize
        self._length = shape[0] * self._row_bytes
        self._start = file.reserve(self._length)

    @classmethod
    def for_rows(cls, file: CacheWriter, spec: Any, count: int) -> "_Array":
        """Make room for `count` rows of a spec."""
        return cls(file, np.dtype(spec.dtype.as_numpy_dtype), (count, *spec.shape.as_list()))

    @classmethod
    def like(cls, file: CacheWriter, array: np.ndarray) -> "_Array":
        """Make room for an array."""
        return cls(file, array.dtype, array.shape)

    def put(self, file: CacheWriter, row: int, rows: np.ndarray) -> None:
        """Write rows from a number on."""
        data = np.ascontiguousarray(rows.reshape(len(rows), *self._shape[1:]), self._dtype)
        file.put(self._start + row * self._row_bytes, data.reshape(-1).view(np.uint8).data)

    def describe(self, file: CacheWriter) -> dict[str, Any]:
        """Return what a reader has to know, with checksums, for which the array is read."""
        step = max(1, _CHECKED_BYTES // max(1, self._row_bytes)) * max(1, self._row_bytes)
        checksums = [
            google_crc32c.value(file.read(self._start + start, min(step, self._length - start)))
            for start in range(0, self._length, step)
        ]
        return {"start": self._start, "shape": self._shape, "step": step, "crcs": checksums}


@final
class RowReader:
    """The rows of a cache file."""

    def __init__(self, file: CacheFile, parts: ElementParts) -> None:
        """Read rows of these parts."""
        self._parts = parts
        columns = zip(file.index["columns"], parts.specs, strict=True)
        self._columns = [_Mapped(file, about, spec.dtype.as_numpy_dtype) for about, spec in columns]
        self._order = _Mapped(file, file.index["order"], np.int64).all()

    def __len__(self) -> int:
        return len(self._order)

    def order(self) -> Iterator[np.ndarray]:
        """Return an iterator over what `get` takes, in chunks."""
        return _order.cut(self._order)

    def get(self, numbers: np.ndarray) -> Any:
        """Return the batch of rows by their numbers."""
        return self._parts.join([column.pick(numbers) for column in self._columns])

    def elements(self) -> Iterator[Any]:
        """Return an iterator over the rows."""
        return _failures.flatten(_elements.rows(self.get(chunk)) for chunk in self.order())

    def batches(self, size: int, *, drop_remainder: bool) -> Iterator[Any]:
        """Return an iterator over batches."""
        return map(self.get, _order.regroup(self.order(), size, drop_remainder=drop_remainder))

    def at(self, number: int) -> Any:
        """Return a row by its number."""
        return next(_elements.rows(self.get(self._order[number : number + 1])))


@final
class _Mapped:
    """An array in a file, whose pieces are compared with their checksums when they are first read."""

    def __init__(self, file: CacheFile, about: dict[str, Any], dtype: Any) -> None:
        self._file, self._start, self._step = file, about["start"], about["step"]
        kind, shape = np.dtype(dtype), tuple(about["shape"])
        self._length = math.prod(shape) * kind.itemsize
        self._array = np.frombuffer(file.memory, kind, math.prod(shape), self._start).reshape(shape)
        self._rows_in_step = self._step // max(1, math.prod(shape[1:]) * kind.itemsize)
        self._crcs = about["crcs"]
        self._is_checked = np.zeros(len(self._crcs), bool)

    def all(self) -> np.ndarray:
        """Return the whole array."""
        return self.pick(np.arange(len(self._array)))

    def pick(self, rows: np.ndarray) -> np.ndarray:
        """Return rows by their numbers.

        Raises:
            DataLossError: If they are damaged.
        """
        if not self._is_checked.all():
            for number in np.unique(rows // self._rows_in_step).tolist():
                self._check(number)
        return _elements.pick(self._array, rows)

    def _check(self, number: int) -> None:
        if number < len(self._crcs) and not self._is_checked[number]:
            start = number * self._step
            self._file.check(self._start + start, min(self._step, self._length - start), self._crcs[number])
            self._is_checked[number] = True
