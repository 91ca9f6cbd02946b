"""Elements of a stream in a cache file: some thousand or a megabyte of them at a time, side by side in arrays."""

import json
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, final

import google_crc32c
import numpy as np

from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow.data import _elements, _failures, _order
from tfdist_jax.compat.tensorflow.data._cache_file import ALIGNMENT, CacheFile, CacheWriter
from tfdist_jax.compat.tensorflow.data._element_parts import ElementParts

LAYOUT = "blocks"

_BLOCK_BYTES, _BLOCK_ELEMENTS = 1 << 20, 4096


@final
class BlockWriter:
    """Writes elements to a cache file, one block after the other."""

    def __init__(self, file: CacheWriter, parts: ElementParts, describe: Callable[[int], dict[str, Any]]) -> None:
        """Write elements of these parts; `describe(failed)` returns what else the index says, when they have all come."""
        self._file, self._parts, self._describe = file, parts, describe
        self._pending: list[list[np.ndarray]] = []
        self._pending_bytes = 0
        self._kind: list[tuple[str, int]] = []
        self._blocks: list[list[int]] = []
        self._shapes: set[str] = set()

    def write(self, element: Any) -> None:
        """Append an element."""
        arrays = self._parts.take_apart(element)
        kind = [(array.dtype.str, array.ndim) for array in arrays]
        full = self._pending_bytes >= _BLOCK_BYTES or len(self._pending) >= _BLOCK_ELEMENTS
        if self._pending and (full or kind != self._kind):
            self._flush()
        self._kind = kind
        # A copy, where what the array is a part of is much larger than it.
        self._pending.append([array if array.base is None else array.copy() for array in arrays])
        self._pending_bytes += sum(map(_bytes, arrays))

    def _flush(self) -> None:
        columns = [_Column.of(list(column)) for column in zip(*self._pending, strict=True)]
        head = json.dumps([column.head for column in columns]).encode()
        pieces = [
            np.array([len(head)], "<u8").tobytes() + head,
            *(piece for column in columns for piece in column.pieces),
        ]
        block = b"".join(part for piece in pieces for part in (piece, b"\0" * (-len(piece) % ALIGNMENT)))
        self._shapes.add(json.dumps([column.head.get("shape") for column in columns]))
        start = self._file.append(block)
        self._blocks.append([start, len(block), google_crc32c.value(block), len(self._pending)])
        self._pending, self._pending_bytes = [], 0

    def finish(self, failed: int) -> None:
        """Complete the file; so many elements were errors."""
        if self._pending:
            self._flush()
        is_even = len(self._shapes) == 1 and "null" not in next(iter(self._shapes))
        self._file.finish({**self._describe(failed), "layout": LAYOUT, "blocks": self._blocks, "is_even": is_even})

    def discard(self) -> None:
        """Remove what is written."""
        self._file.discard()


def _bytes(array: np.ndarray) -> int:
    return sum(map(len, array.reshape(-1).tolist())) + 64 if array.dtype.kind == "O" else array.nbytes


@final
class _Column:
    """One array of each element of a block, as bytes, and what says how to read them."""

    def __init__(self, head: dict[str, Any], pieces: list[bytes]) -> None:
        self.head = {**head, "pieces": list(map(len, pieces))}
        self.pieces = pieces

    @classmethod
    def of(cls, arrays: list[np.ndarray]) -> "_Column":
        first = arrays[0]
        is_text = first.dtype.kind in "OSU"
        head: dict[str, Any] = {"dtype": "string" if is_text else as_dtype(first.dtype).name, "count": len(arrays)}
        pieces = []
        if all(array.shape == first.shape for array in arrays):
            head["shape"] = first.shape
        else:
            pieces.append(np.array([array.shape for array in arrays], "<i8").tobytes())
            head["rank"] = first.ndim
        if is_text:
            texts = [text for array in arrays for text in array.reshape(-1).tolist()]
            pieces += [np.array(list(map(len, texts)), "<i8").tobytes(), b"".join(texts)]
        elif "shape" in head:
            pieces.append(np.stack(arrays).tobytes())
        else:
            pieces.append(np.concatenate([array.reshape(-1) for array in arrays]).tobytes())
        return cls(head, pieces)


def _read_column(head: Mapping[str, Any], pieces: list[memoryview]) -> Any:
    """Return a column: an array of one row for each element, or a list of arrays of different shapes."""
    rest = list(pieces)
    shapes = (
        None if "shape" in head else np.frombuffer(rest.pop(0), "<i8").reshape(head["count"], head["rank"]).tolist()
    )
    flat = (
        _read_texts(*rest)
        if head["dtype"] == "string"
        else np.frombuffer(rest[0], as_dtype(head["dtype"]).as_numpy_dtype)
    )
    if shapes is None:
        return flat.reshape(head["count"], *head["shape"])
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    return [part.reshape(shape) for part, shape in zip(np.split(flat, ends), shapes, strict=True)]


def _read_texts(lengths: memoryview, texts: memoryview) -> np.ndarray:
    data, at, found = bytes(texts), 0, []
    for length in np.frombuffer(lengths, "<i8").tolist():
        found.append(data[at : at + length])
        at += length
    flat = np.empty(len(found), object)
    flat[:] = found
    return flat


@final
class BlockReader:
    """The elements of a cache file of blocks."""

    def __init__(self, file: CacheFile, parts: ElementParts) -> None:
        """Read elements of these parts."""
        self._file, self._parts = file, parts
        self._checked: set[int] = set()
        self._last: tuple[int, list[Any]] = (-1, [])
        self._ends = np.cumsum([block[3] for block in file.index["blocks"]])

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def elements(self) -> Iterator[Any]:
        """Return an iterator over the elements; a block that is damaged is an error in their place."""
        return _failures.flatten(map(self._elements_of, range(len(self._ends))))

    def _elements_of(self, number: int) -> Iterator[Any]:
        columns = self._columns(number)
        if self._parts.are_tensors and all(isinstance(column, np.ndarray) for column in columns):
            return _elements.rows(self._parts.join(columns))
        rows = [column if isinstance(column, list) else list(_elements.rows(column)) for column in columns]
        count = self._file.index["blocks"][number][3]
        return map(self._parts.put_together, zip(*rows, strict=True) if rows else [()] * count)

    def batches(self, size: int, *, drop_remainder: bool) -> Iterator[Any] | None:
        """Return an iterator over batches that are cut from the blocks; None if the elements have to be stacked one by one."""
        if not (self._parts.are_tensors and self._parts.specs and self._file.index["is_even"]):
            return None
        return _regroup(map(self._batch_of, range(len(self._ends))), size, drop_remainder=drop_remainder)

    def _batch_of(self, number: int) -> Any:
        return self._parts.join(self._columns(number))

    def order(self) -> Iterator[np.ndarray]:
        """Return an iterator over what `get` takes, in chunks."""
        return _order.in_order(len(self))

    def get(self, numbers: np.ndarray) -> Any:
        """Return the batch of elements by their numbers."""
        return _elements.stack(list(map(self.at, numbers.tolist())))

    def at(self, number: int) -> Any:
        """Return an element by its number."""
        block = int(np.searchsorted(self._ends, number, side="right"))
        place = number - (int(self._ends[block - 1]) if block else 0)
        columns = self._columns(block)
        return self._parts.put_together(
            [column[place] if isinstance(column, list) else column[place, ...] for column in columns]
        )

    def _block(self, number: int) -> memoryview:
        start, length, crc, _ = self._file.index["blocks"][number]
        if number not in self._checked:
            self._file.check(start, length, crc)
            self._checked.add(number)
        return memoryview(self._file.memory)[start : start + length]

    def _columns(self, number: int) -> list[Any]:
        known, columns = self._last
        if known != number:
            columns = self._read(self._block(number))
            self._last = number, columns
        return columns

    def _read(self, block: memoryview) -> list[Any]:
        head, at = _read_head(block)
        columns = []
        for column in head:
            pieces = []
            for length in column["pieces"]:
                pieces.append(block[at : at + length])
                at += _aligned(length)
            columns.append(_read_column(column, pieces))
        return columns


def _read_head(block: memoryview) -> tuple[list[dict[str, Any]], int]:
    length = int(np.frombuffer(block[:8], "<u8")[0])
    return json.loads(bytes(block[8 : 8 + length])), _aligned(8 + length)


def _aligned(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT


def _regroup(blocks: Iterator[Any], size: int, *, drop_remainder: bool) -> Iterator[Any]:
    """Return an iterator over batches of `size` rows of larger and smaller ones; an error in place of each that is damaged."""
    return _failures.raising(_cut(_failures.guarded(blocks), size, drop_remainder=drop_remainder))


def _cut(blocks: Iterator[Any], size: int, *, drop_remainder: bool) -> Iterator[Any]:
    pending: list[Any] = []
    waiting = 0
    for block in blocks:
        if type(block) is _failures.Failure:
            yield block
            continue
        pending.append(block)
        waiting += len(_elements.leaves(block)[0])
        if waiting < size:
            continue
        joined = _join(pending)
        whole = waiting // size * size
        for start in range(0, whole, size):
            yield _rows_of(joined, start, start + size)
        pending, waiting = [_rows_of(joined, whole, waiting)], waiting - whole
    if waiting and not drop_remainder:
        yield _join(pending)


def _join(batches: list[Any]) -> Any:
    return _elements.map_structure(lambda *parts: np.concatenate(parts), *batches) if len(batches) > 1 else batches[0]


def _rows_of(batch: Any, start: int, stop: int) -> Any:
    return _elements.map_structure(operator.itemgetter(slice(start, stop)), batch)
