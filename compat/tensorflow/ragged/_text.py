"""Rows as nested lists and arrays, and how TensorFlow writes them."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow.ragged._row_partition import RowPartition


def nested_list(values: np.ndarray, partitions: Sequence[RowPartition]) -> list[Any]:
    """Return rows as nested lists."""
    rows = values.tolist()
    for partition in reversed(partitions):
        splits = partition.splits.tolist()
        rows = [rows[start:stop] for start, stop in itertools.pairwise(splits)]
    return rows


def nested_array(values: np.ndarray, partitions: Sequence[RowPartition]) -> np.ndarray:
    """Return rows as arrays: an array of objects where their lengths differ, else an array of more axes."""
    rows = values
    for partition in reversed(partitions):
        rows = _array_of_rows(rows, partition)
    return rows


def _array_of_rows(values: np.ndarray, partition: RowPartition) -> np.ndarray:
    splits = partition.splits.tolist()
    if len(splits) == 1:
        return np.array([], values.dtype)
    rows = [values[start:stop] for start, stop in itertools.pairwise(splits)]
    if len({len(row) for row in rows}) == 1:
        return np.array(rows)
    # Not `np.array(rows, object)`: rows whose other axes are equal would be looked into.
    array = np.empty(len(rows), object)
    array[:] = rows
    return array


def array_text(array: np.ndarray) -> str:
    """Return an array of arrays with commas between all elements."""
    with np.printoptions(formatter={"all": _element_text}):
        return _element_text(array)


def _element_text(element: Any) -> str:
    if not isinstance(element, np.ndarray):
        return str(element)
    # NumPy writes [] whatever the shape of an array without elements.
    return np.array2string(element, separator=", ") if element.size else repr(element.tolist())


def summary(values: np.ndarray, partitions: Sequence[RowPartition], summarize: int) -> str:
    """Return what `tf.print` shows of rows: so many entries at each end of an axis, all if that is negative."""
    texts = np.empty(values.size, object)
    texts[:] = list(map(_printed, values.reshape(-1).tolist()))
    return _summary(nested_list(texts.reshape(values.shape), partitions), summarize)


def _summary(rows: Any, summarize: int) -> str:
    if not isinstance(rows, list):
        return rows
    shown = [_summary(row, summarize) for row in rows]
    if 0 <= 2 * summarize < len(rows):
        shown[summarize : len(rows) - summarize] = ["..."]
    return f"[{', '.join(shown)}]"


def _printed(value: Any) -> str:
    if isinstance(value, bytes):
        return f"'{value.decode(errors='replace')}'"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:f}" if isinstance(value, float) else str(value)
