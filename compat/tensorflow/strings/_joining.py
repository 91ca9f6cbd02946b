"""`tf.strings.join`, `reduce_join`, `unsorted_segment_join`: strings put one behind the other."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid, static_ints
from tfdist_jax.compat.tensorflow._ops._host_operation import make_strings, numbers_of, strings_of
from tfdist_jax.compat.tensorflow._platform._errors import OutOfRangeError
from tfdist_jax.compat.tensorflow._tensors._host_part import computes_rows
from tfdist_jax.compat.tensorflow.ragged._base import Ragged


@computes_rows
def join(inputs: Sequence[Any], separator: str = "", name: str | None = None) -> Any:
    """Return strings joined element by element.

    Args:
        inputs: Tensors of strings, of one shape or scalars.
        separator: What stands between them.
        name: Unused.

    Raises:
        InvalidArgumentError: If their shapes differ.
    """
    tensors = list(map(strings_of, inputs))
    shape = next((texts.shape for texts in tensors if texts.ndim), ())
    for texts in tensors:
        if texts.ndim and texts.shape != shape:
            raise invalid(f"Input shapes do not match: {_sizes(shape)} vs. {_sizes(texts.shape)}")
    rows = zip(*(np.broadcast_to(texts, shape).flat for texts in tensors), strict=True)
    joined = map(_bytes(separator).join, rows) if tensors else [b""]
    return make_strings(joined, shape)


def reduce_join(
    inputs: Any, axis: Any = None, keepdims: bool = False, separator: str = "", name: str | None = None
) -> Any:
    """Return strings joined along axes: along the first that is given, what comes of it along the next, and so on.

    Args:
        inputs: Strings, also ragged ones.
        axis: The axes, of which none is given twice; if None all of them, the last one first.
        keepdims: Whether to keep them, with size 1.
        separator: What stands between two strings.
        name: Unused.

    Raises:
        OutOfRangeError: If there is no such axis.
        InvalidArgumentError: If an axis is given twice.
        NotImplementedError: For several axes of a ragged tensor, but all, and for its middle ones.
    """
    if isinstance(inputs, Ragged):
        return _reduce_ragged(inputs, axis, keepdims, separator)
    texts = strings_of(inputs)
    axes = range(texts.ndim)[::-1] if axis is None else static_ints(axis, "axis")
    reduced = [_axis(number, texts.ndim) for number in axes]
    twice = next((number for i, number in enumerate(reduced) if number in reduced[:i]), None)
    if twice is not None:
        raise invalid(f"Duplicate reduction dimension {twice}")
    if not reduced:
        return make_strings(texts.flat, texts.shape)
    kept = [number for number in range(texts.ndim) if number not in reduced]
    count = math.prod(texts.shape[number] for number in kept)
    rows = np.transpose(texts, (*kept, *reduced[::-1])).reshape(count, -1 if texts.size else 0)
    shape = [1 if number in reduced else size for number, size in enumerate(texts.shape)]
    result = make_strings(map(_bytes(separator).join, rows.tolist()), (count,))
    return result.reshape(shape if keepdims else [texts.shape[number] for number in kept])


def _reduce_ragged(texts: Any, axis: Any, keepdims: bool, separator: str) -> Any:
    glue = _bytes(separator)
    axes = None if axis is None else [_axis(number, texts.rank) for number in static_ints(axis, "axis")]
    if axes is None or len(axes) == texts.rank:
        joined = make_strings([glue.join(strings_of(texts.flat_values).reshape(-1))], ())
        return joined.reshape((1,) * texts.rank) if keepdims else joined
    is_matrix = len(texts.partitions) == 1 and not texts.inner_sizes
    if axes == [texts.rank - 1] and not is_matrix:
        return texts.with_values(reduce_join(texts.values, -1, keepdims, separator))
    if len(axes) > 1 or not is_matrix:
        raise NotImplementedError(
            f"tf.strings.reduce_join takes the last axis of a ragged tensor, or all, got {axis}. Use `to_tensor('')` before it."
        )
    rows = texts.to_list()
    columns = [[part for part in column if part is not None] for column in itertools.zip_longest(*rows)]
    joined = make_strings(map(glue.join, rows if axes == [1] else columns), (-1,))
    return np.expand_dims(joined, axes[0]) if keepdims else joined


def _axis(number: int, rank: int) -> int:
    if not -rank <= number < rank:
        raise OutOfRangeError(None, None, f"Invalid reduction dimension {number} for input with {rank} dimension(s)")
    return number % rank


def unsorted_segment_join(
    inputs: Any, segment_ids: Any, num_segments: Any, separator: str = "", name: str | None = None
) -> Any:
    """Return the strings of each segment joined.

    Args:
        inputs: Strings, whose first axes have the shape of `segment_ids`.
        segment_ids: The segment of each, int32 or int64.
        num_segments: How many segments there are; those without a string are "".
        separator: What stands between two strings.
        name: Unused.

    Returns:
        Strings `[num_segments, ...]`.

    Raises:
        InvalidArgumentError: If an id is negative, or not less than `num_segments`.
    """
    texts, ids, count = strings_of(inputs), numbers_of(segment_ids), int(numbers_of(num_segments))
    if texts.shape[: ids.ndim] != ids.shape:
        raise invalid(
            f"segment_ids' shape {_sizes(ids.shape)} is not a prefix of the inputs' shape {_sizes(texts.shape)}"
        )
    if ids.size and not (ids.min() >= 0 and ids.max() < count):
        raise invalid("segment_ids are not allowed to exceed num_segments or to have negative values.")
    rest = texts.shape[ids.ndim :]
    columns = math.prod(rest)
    parts: list[list[bytes]] = [[] for _ in range(count * columns)]
    for segment, row in zip(ids.reshape(-1).tolist(), texts.reshape(ids.size, columns).tolist(), strict=True):
        for column, text in enumerate(row):
            parts[segment * columns + column].append(text)
    return make_strings(map(_bytes(separator).join, parts), (count, *rest))


def _bytes(separator: str | bytes) -> bytes:
    return separator if isinstance(separator, bytes) else separator.encode()


def _sizes(shape: Sequence[int]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
