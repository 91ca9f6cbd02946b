"""Operations on each value of ragged tensors, also together with tensors whose shapes broadcast."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, is_tensor
from tfdist_jax.compat.tensorflow.ragged._base import Ragged
from tfdist_jax.compat.tensorflow.ragged._row_partition import RowPartition, spans, splits_dtype
from tfdist_jax.compat.tensorflow.ragged._rows import Partitions, merge_axes, take, uniform_partitions


def map_flat_values(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return `op` applied to the flat values of ragged tensors, which all have the same rows.

    See https://www.tensorflow.org/api_docs/python/tf/ragged/map_flat_values.

    Args:
        op: Takes tensors, and returns one with an entry for each flat value.
        *args: Arguments of `op`: ragged tensors, also in lists, are replaced by their flat values.
        **kwargs: Likewise.

    Raises:
        InvalidArgumentError: If the rows differ.
        ValueError: If the result has another number of entries.
    """
    found: list[Ragged] = []
    plain = [_flat(arg, found) for arg in args]
    named = {name: _flat(arg, found) for name, arg in kwargs.items()}
    result = op(*plain, **named)
    if not found:
        return result
    partitions = same_partitions(found)
    count = np.shape(found[0].flat_values)[0]
    if np.shape(result)[:1] != (count,):
        raise ValueError(
            "tf.ragged.map_flat_values requires that the output of `op` have the same outer-dimension size as flat_values of any "
            f"ragged inputs. (output shape: {tuple(np.shape(result))}; expected outer dimension size: {count})"
        )
    return found[0].of(result, partitions)


def _flat(value: Any, found: list[Ragged]) -> Any:
    if isinstance(value, Ragged):
        found.append(value)
        return value.flat_values
    if isinstance(value, list | tuple) and not is_tensor(value):
        return type(value)(_flat(item, found) for item in value) if type(value) in (list, tuple) else value
    return value


def same_partitions(found: Sequence[Ragged]) -> Partitions:
    """Return the rows of ragged tensors, which must be the same.

    Raises:
        InvalidArgumentError: If they differ.
        ValueError: If their number of levels or type does.
    """
    first = found[0]
    for other in found[1:]:
        splits_dtype([first.outer, other.outer])
        if other.ragged_rank != first.ragged_rank:
            raise ValueError(
                f"Ragged tensors must have one ragged_rank, got {first.ragged_rank} and {other.ragged_rank}."
            )
        for mine, its in zip(first.partitions, other.partitions, strict=True):
            if not mine.is_same(its):
                raise invalid(
                    f"partitions have incompatible row_splits: {mine.splits.tolist()} and {its.splits.tolist()}"
                )
    return first.partitions


def elementwise(op: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """Return `op` of each value of operands: ragged tensors, and what broadcasts with them.

    An axis of size 1 is repeated; rows whose lengths may differ must have the same ones.

    Raises:
        InvalidArgumentError: If they do not broadcast.
        ValueError: If rows are counted with different types.
    """
    given = _converted(operands)
    ragged = [one for one in given if isinstance(one, Ragged)]
    if len(ragged) == len(given) and all(_has_same(ragged[0], other) for other in ragged[1:]):
        return ragged[0].of(op(*(one.flat_values for one in ragged)), ragged[0].partitions)
    splits_dtype([one.outer for one in ragged])
    rank = max(_rank(one) for one in given)
    depth = max(one.ragged_rank + rank - one.rank for one in ragged)
    whole = {
        i: _Operand(one, rank, depth, ragged[0].outer.dtype)
        for i, one in enumerate(given)
        if _rank(one) > rank - depth - 1
    }
    partitions = _broadcast(list(whole.values()))
    values = [whole[i].values() if i in whole else one for i, one in enumerate(given)]
    return ragged[0].of(op(*values), partitions)


def _converted(operands: Sequence[Any]) -> list[Any]:
    """Return operands with lists made tensors; numbers and texts stay, and take the others' type."""
    hint = next((one.dtype for one in operands if isinstance(one, Ragged)), None)
    is_plain = lambda one: isinstance(one, list | tuple | str | bytes | np.ndarray) and not is_tensor(one)
    return [convert_to_tensor(one, dtype_hint=hint) if is_plain(one) else one for one in operands]


def _has_same(one: Ragged, other: Ragged) -> bool:
    if one.rank != other.rank or one.ragged_rank != other.ragged_rank or one.outer.dtype != other.outer.dtype:
        return False
    return all(mine.is_same(its) for mine, its in zip(one.partitions, other.partitions, strict=True))


def _rank(value: Any) -> int:
    return value.rank if isinstance(value, Ragged) else np.ndim(value)


class _Operand:
    """An operand as rows at as many levels as the result has: which of its rows each row of the result takes."""

    def __init__(self, given: Any, rank: int, depth: int, dtype: Any) -> None:
        flat, levels = (given.flat_values, list(given.partitions)) if isinstance(given, Ragged) else (given, [])
        missing = rank - _rank(given)
        flat, levels = _with_levels(flat, levels, depth - missing, dtype)
        if missing:
            outer = levels[0].nrows if levels else np.shape(flat)[0]
            levels = (
                [RowPartition.uniform(1, 1, dtype)] * (missing - 1) + [RowPartition.uniform(1, outer, dtype)] + levels
            )
        self._flat, self.levels = flat, levels
        self.nrows = levels[0].nrows if levels else np.shape(flat)[0]
        self.index: np.ndarray | None = None
        """The row for each of the result's; None for the same."""

    def values(self) -> Any:
        """Return the values for the result's."""
        return self._flat if self.index is None else take(self._flat, self.index)

    def repeat(self, count: int) -> None:
        """Take the only row for `count` of the result's."""
        self.index = np.zeros(count, np.int64)

    def lengths(self, level: int) -> np.ndarray:
        """Return the lengths of the rows that the result's rows take."""
        own = self.levels[level].lengths
        return own if self.index is None else own[self.index]

    def descend(self, level: int, lengths: np.ndarray, *, repeats: bool) -> None:
        """Go from rows to their entries; each row's only one is taken for all of the result's if it is repeated."""
        if self.index is None and not repeats:
            return
        starts = self.levels[level].starts
        starts = starts if self.index is None else starts[self.index]
        self.index = np.repeat(starts, lengths) if repeats else spans(starts, lengths)


def _with_levels(flat: Any, levels: list[RowPartition], count: int, dtype: Any) -> tuple[Any, list[RowPartition]]:
    """Return values and partitions of `count` levels, the last of which are axes of the values."""
    more = count - len(levels)
    if more <= 0:
        return flat, levels
    sizes = np.shape(flat)
    return merge_axes(flat, more + 1), [*levels, *uniform_partitions(sizes[: more + 1], dtype)]


def _broadcast(operands: list[_Operand]) -> Partitions:
    """Find the rows of the result, and which of their own each operand has for them."""
    count = max((one.nrows for one in operands if one.nrows != 1), default=1)
    for one in operands:
        if one.nrows not in (1, count):
            raise invalid(f"Unable to broadcast: dimension size mismatch in dimension 0: {one.nrows} and {count}")
        if one.nrows != count:
            one.repeat(count)
    found = []
    for level in range(len(operands[0].levels)):
        is_one = [one.levels[level].uniform_length == 1 for one in operands]
        partition = _common_rows(
            [one for one, repeats in zip(operands, is_one, strict=True) if not repeats] or operands, level
        )
        for one, repeats in zip(operands, is_one, strict=True):
            one.descend(level, partition.lengths, repeats=repeats and partition.uniform_length != 1)
        found.append(partition)
    return tuple(found)


def _common_rows(operands: list[_Operand], level: int) -> RowPartition:
    lengths = [one.lengths(level) for one in operands]
    for other in lengths[1:]:
        if not np.array_equal(lengths[0], other):
            raise invalid(
                f"Unable to broadcast: dimension size mismatch in dimension {level + 1}: the rows' lengths are "
                f"{lengths[0].tolist()} and {other.tolist()}. Only an axis of size 1 is repeated."
            )
    uniform = next(
        (one.levels[level].uniform_length for one in operands if one.levels[level].uniform_length is not None), None
    )
    dtype = operands[0].levels[level].dtype
    if uniform is not None and all(one.levels[level].uniform_length is not None for one in operands):
        return RowPartition.uniform(len(lengths[0]), uniform, dtype)
    return RowPartition.of_lengths(lengths[0], dtype)
