"""Rows put one behind the other: those of ragged tensors, and arrays of different lengths."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._ops import _concat
from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.ragged._base import Ragged, with_outer
from tfdist_jax.compat.tensorflow.ragged._row_partition import RowPartition
from tfdist_jax.compat.tensorflow.ragged._rows import merge_axes


def parts_of(given: Any) -> tuple[Any, tuple[RowPartition, ...]]:
    """Return flat values and partitions; a tensor has none."""
    return (given.flat_values, given.partitions) if isinstance(given, Ragged) else (given, ())


def join_rows(like: type[Ragged], given: Sequence[Any]) -> Any:
    """Return the rows of ragged tensors, or of tensors, one behind the other."""
    flats = [parts_of(one)[0] for one in given]
    levels = list(zip(*(parts_of(one)[1] for one in given), strict=True))
    return like.of(_concat.concat(flats, 0), [_joined_level(level) for level in levels])


def _joined_level(partitions: Sequence[RowPartition]) -> RowPartition:
    return RowPartition.of_lengths(np.concatenate([p.lengths for p in partitions]), partitions[0].dtype)


def join_ragged(like: type[Ragged], given: Sequence[Ragged]) -> Any:
    """Return ragged tensors of one rank as the rows of another.

    Raises:
        InvalidArgumentError: If their ranks differ.
    """
    ranks = {(one.rank, one.ragged_rank) for one in given}
    if len(ranks) > 1:
        raise invalid(f"Cannot batch ragged tensors of different ranks: {sorted(ranks)}.")
    outer = RowPartition.of_lengths(np.asarray([one.outer.nrows for one in given]), given[0].outer.dtype)
    return with_outer(like, outer, join_rows(like, given))


def join_arrays(
    like: type[Ragged], arrays: Sequence[np.ndarray], ragged_rank: int, dtype: Any, sizes: Sequence[int | None]
) -> Any:
    """Return arrays of one rank as the rows of a ragged tensor.

    Args:
        like: The class.
        arrays: The arrays.
        ragged_rank: How many of their axes are split.
        dtype: The type of the splits.
        sizes: Their sizes; None where they may differ.

    Raises:
        InvalidArgumentError: If they differ elsewhere.
    """
    shapes = [np.shape(array) for array in arrays]
    if len({(len(shape), shape[ragged_rank:]) for shape in shapes}) > 1 or len(shapes[0]) < ragged_rank:
        raise invalid(
            f"Cannot batch tensors with different shapes: {', '.join(sorted({str(shape) for shape in shapes}))}."
        )
    levels = []
    for level in range(ragged_rank):
        rows = [int(np.prod(shape[:level])) for shape in shapes]
        lengths = np.repeat([shape[level] for shape in shapes], rows)
        uniform = sizes[level] if level else None
        levels.append(RowPartition(RowPartition.of_lengths(lengths, dtype).splits, uniform))
    flat = np.concatenate([merge_axes(np.asarray(array), ragged_rank) for array in arrays])
    return like.of(convert_to_tensor(flat), levels)
