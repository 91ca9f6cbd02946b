"""`ragged[...]`: parts of ragged tensors.

See https://www.tensorflow.org/api_docs/python/tf/RaggedTensor#__getitem__.
"""

from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid, static_int
from tfdist_jax.compat.tensorflow._ops._shapes import expand_dims
from tfdist_jax.compat.tensorflow._tensors._checks import missing_entry
from tfdist_jax.compat.tensorflow._tensors._tensor import is_tensor
from tfdist_jax.compat.tensorflow.ragged._base import Ragged, with_outer
from tfdist_jax.compat.tensorflow.ragged._row_partition import RowPartition, spans
from tfdist_jax.compat.tensorflow.ragged._rows import slice_rows, take_rows

_EVERYTHING = slice(None)


def get_part(ragged: Ragged, key: Any) -> Any:
    """Return what `ragged[key]` is.

    Raises:
        TypeError: If a key is no integer, slice, `...` or `tf.newaxis`.
        ValueError: If an integer is for an axis whose size differs from row to row.
        IndexError: If there is no such row.
    """
    keys = list(key) if isinstance(key, list | tuple) else [key]
    return _of_rows(ragged, _without_ellipsis(keys, ragged.rank))


def _without_ellipsis(keys: list[Any], rank: int) -> list[Any]:
    number = sum(key is Ellipsis for key in keys)
    if not number:
        return keys
    if number > 1:
        raise ValueError("An index may have only one ellipsis (`...`).")
    at = next(i for i, key in enumerate(keys) if key is Ellipsis)
    missing = rank - sum(key is not None for key in keys) + 1
    return [*keys[:at], *[_EVERYTHING] * max(missing, 0), *keys[at + 1 :]]


def _of_rows(given: Any, keys: list[Any]) -> Any:
    """Apply keys to the first axis and those that follow."""
    if not keys:
        return given
    if not isinstance(given, Ragged):
        return _of_tensor(given, tuple(keys))
    key, rest = keys[0], keys[1:]
    if key is None:
        return _with_outer_axis(given, _of_rows(given, rest))
    if isinstance(key, slice):
        return _within_rows(_sliced(given, key), rest)
    number = _integer(key)
    nrows = given.outer.nrows
    if not -nrows <= number < nrows:
        raise IndexError(f"Row key {number} out of bounds: there are {nrows} rows.")
    number %= nrows
    splits = given.outer.splits
    row = slice_rows(given.flat_values, given.partitions[1:], int(splits[number]), int(splits[number + 1]))
    return _of_rows(given.of(*row), rest)


def _of_tensor(given: Any, keys: tuple[Any, ...]) -> Any:
    message = missing_entry(keys, np.shape(given))
    if message:
        raise invalid(message)
    return given[keys]


def _with_outer_axis(like: Ragged, inner: Any) -> Any:
    if not isinstance(inner, Ragged):
        return expand_dims(inner, 0)
    return with_outer(like, RowPartition.uniform(1, inner.outer.nrows, like.outer.dtype), inner)


def _sliced(given: Ragged, key: slice) -> Ragged:
    start, stop, step = (None if bound is None else _integer(bound) for bound in (key.start, key.stop, key.step))
    if (start, stop, step) == (None, None, None):
        return given
    if step in (None, 1):
        first, last, _ = slice(start, stop).indices(given.outer.nrows)
        return given.of(*slice_rows(given.flat_values, given.partitions, first, max(first, last)))
    rows = np.arange(given.outer.nrows)[start:stop:step]
    return given.of(*take_rows(given.flat_values, given.partitions, rows))


def _within_rows(given: Any, keys: list[Any]) -> Any:
    """Apply keys to the axes behind the first, whose rows stay."""
    if not keys:
        return given
    if not isinstance(given, Ragged):
        return _of_tensor(given, (_EVERYTHING, *keys))
    key, rest = keys[0], keys[1:]
    if key is None:
        inner = _within_rows(given, rest)
        nrows = given.outer.nrows
        column = RowPartition.uniform(nrows, 1, given.outer.dtype)
        return with_outer(given, column, inner)
    if isinstance(key, slice):
        cut = _cut(given, key)
        return cut.with_values(_within_rows(cut.values, rest))
    return _within_rows(_column(given, _integer(key)), rest)


def _column(given: Ragged, number: int) -> Any:
    """Return one entry of each row, which is there if rows have one length."""
    length = given.outer.uniform_length
    if length is None:
        raise ValueError("Cannot index into an inner ragged dimension. Take a slice of it, such as `x[:, :1]`.")
    if not -length <= number < length:
        raise IndexError(f"Index {number} out of bounds: rows have {length} entries.")
    index = given.outer.starts + number % length
    return given.of(*take_rows(given.flat_values, given.partitions[1:], index))


def _cut(given: Ragged, key: slice) -> Ragged:
    """Return a slice of each row."""
    start, stop, step = (None if bound is None else _integer(bound) for bound in (key.start, key.stop, key.step))
    if (start, stop, step) == (None, None, None):
        return given
    lengths = given.outer.lengths
    first, counts, by = _bounds(lengths, start, stop, 1 if step is None else step)
    column = spans(np.zeros(len(counts), np.int64), counts)
    index = np.repeat(given.outer.starts + first, counts) + column * by
    uniform = given.outer.uniform_length
    if uniform is None:
        outer = RowPartition.of_lengths(counts, given.outer.dtype)
    else:
        outer = RowPartition.uniform(len(lengths), len(range(uniform)[start:stop:step]), given.outer.dtype)
    values, partitions = take_rows(given.flat_values, given.partitions[1:], index)
    return given.of(values, (outer, *partitions))


def _bounds(lengths: np.ndarray, start: int | None, stop: int | None, step: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Return where Python's slice begins in rows of some lengths, how many entries it has, and its step."""
    if step == 0:
        raise ValueError("slice step cannot be zero")
    low, high = (np.zeros_like(lengths), lengths) if step > 0 else (np.full_like(lengths, -1), lengths - 1)

    def bound(given: int | None, otherwise: np.ndarray) -> np.ndarray:
        if given is None:
            return otherwise
        return np.clip(lengths + given if given < 0 else np.full_like(lengths, given), low, np.maximum(high, low))

    first = bound(start, low if step > 0 else high)
    last = bound(stop, high if step > 0 else low)
    return first, np.maximum(-((first - last) // step), 0), step


def _integer(key: Any) -> int:
    is_number = isinstance(key, int | np.integer) and not isinstance(key, bool)
    tensor = key if is_tensor(key) and not np.ndim(key) else None
    if not is_number and getattr(getattr(tensor, "dtype", None), "name", "") not in ("int32", "int64"):
        raise TypeError(
            "Only integers, slices (`:`), ellipsis (`...`), tf.newaxis (`None`) and scalar tf.int32/tf.int64 tensors are valid "
            f"indices, got {key!r}"
        )
    return static_int(key, "index")
