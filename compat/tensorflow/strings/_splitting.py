"""`tf.strings.split`, `bytes_split`, `ngrams`: parts of strings, as ragged tensors."""

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid, static_ints
from tfdist_jax.compat.tensorflow._ops._host_operation import make_strings, strings_of
from tfdist_jax.compat.tensorflow.ragged._base import Ragged
from tfdist_jax.compat.tensorflow.ragged._ragged_tensor import RaggedTensor
from tfdist_jax.compat.tensorflow.ragged._row_partition import RowPartition


def split(input: Any, sep: Any = None, maxsplit: int = -1, name: str | None = None) -> Any:
    """Return the parts of strings.

    Args:
        input: Strings, also ragged ones.
        sep: What stands between parts; any white space if None or "".
        maxsplit: How often to split a string at most; no bound if negative.
        name: Unused.

    Returns:
        A ragged tensor with an axis more; of a scalar a tensor.

    Raises:
        InvalidArgumentError: If `sep` is no scalar.
    """
    separator = b"" if sep is None else strings_of(sep)
    if isinstance(separator, np.ndarray):
        if separator.ndim:
            raise invalid(f"sep must be a scalar, got shape: {list(separator.shape)}")
        separator = separator.item()
    return split_each(input, operator.methodcaller("split", separator or None, maxsplit))


def bytes_split(input: Any, name: str | None = None) -> Any:
    """Return the bytes of strings, as strings of one byte.

    Args:
        input: Strings, also ragged ones.
        name: Unused.

    Returns:
        A ragged tensor with an axis more; of a scalar a tensor.
    """
    return split_each(input, lambda text: [text[i : i + 1] for i in range(len(text))])


def split_each(value: Any, parts_of: Callable[[bytes], Sequence[bytes]]) -> Any:
    """Return strings that are made of each string, ragged unless there is one alone."""
    return of_each(value, parts_of, lambda parts: make_strings(parts, (len(parts),)))


def of_each(value: Any, parts_of: Callable[[bytes], Sequence[Any]], make: Callable[[list[Any]], Any]) -> Any:
    """Return what is made of each string, ragged unless there is one alone.

    Args:
        value: Strings, also ragged ones.
        parts_of: Returns a string's parts.
        make: Makes a tensor of the parts of all strings.
    """
    if isinstance(value, Ragged):
        return value.with_flat_values(of_each(value.flat_values, parts_of, make))
    texts = strings_of(value)
    rows = list(map(parts_of, texts.reshape(-1).tolist()))
    flat = make(list(itertools.chain.from_iterable(rows)))
    if not texts.ndim:
        return flat
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    outer = [RowPartition.uniform(int(np.prod(texts.shape[:i])), texts.shape[i]) for i in range(1, texts.ndim)]
    return RaggedTensor.of(flat, [*outer, RowPartition.of_lengths(lengths)])


def ngrams(
    data: Any,
    ngram_width: Any,
    separator: str = " ",
    pad_values: Any = None,
    padding_width: int | None = None,
    preserve_short_sequences: bool = False,
    name: str | None = None,
) -> Any:
    """Return strings that stand next to each other, joined.

    Args:
        data: Strings `[..., n]`, also ragged ones.
        ngram_width: How many are joined; or several such numbers, whose n-grams come one after the other.
        separator: What stands between them.
        pad_values: What stands before the first and behind the last string: one for both, or two; None for nothing.
        padding_width: How many of these at most; one less than joined if None.
        preserve_short_sequences: Whether a row with too few strings is joined to one, where it would have none.
        name: Unused.

    Returns:
        Strings `[..., m]`; ragged if `data` is.

    Raises:
        TypeError: If `pad_values` are no strings.
        ValueError: If a width is not positive, or `data` is a scalar.
    """
    widths = static_ints(ngram_width, "ngram_width")
    if bad := [width for width in widths if width < 1]:
        raise ValueError(f"All ngram_widths must be greater than 0. Got {', '.join(map(str, bad))}")
    if padding_width is not None and padding_width < 1:
        raise ValueError("padding_width must be greater than 0.")
    pads = _pads(pad_values)
    glue = separator.encode() if isinstance(separator, str) else separator

    def of_row(row: list[bytes]) -> list[bytes]:
        found = [
            part for width in widths for part in _join_neighbours(_padded(row, width, pads, padding_width), width, glue)
        ]
        if not found and row and preserve_short_sequences:
            return [glue.join(row)]
        return found

    if isinstance(data, Ragged):
        if len(data.partitions) > 1:
            inner = ngrams(data.values, widths, separator, pad_values, padding_width, preserve_short_sequences)
            return data.with_values(inner)
        rows = [of_row(row) for row in data.to_list()]
        flat = [part for row in rows for part in row]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return RaggedTensor.of(make_strings(flat, (len(flat),)), [RowPartition.of_lengths(lengths, data.outer.dtype)])
    texts = strings_of(data)
    if not texts.ndim:
        raise ValueError("Data must have rank>0")
    rows = [of_row(row) for row in texts.reshape(-1, texts.shape[-1]).tolist()] if texts.size else []
    count = len(rows[0]) if rows else 0
    return make_strings((part for row in rows for part in row), (*texts.shape[:-1], count))


def _pads(pad_values: Any) -> tuple[bytes, bytes] | None:
    if pad_values is None:
        return None
    pair = (pad_values, pad_values) if isinstance(pad_values, str | bytes) else pad_values
    if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(isinstance(pad, str | bytes) for pad in pair):
        raise TypeError("pad_values must be a string, tuple of strings, or None.")
    left, right = (pad.encode() if isinstance(pad, str) else pad for pad in pair)
    return left, right


def _padded(row: list[bytes], width: int, pads: tuple[bytes, bytes] | None, most: int | None) -> list[bytes]:
    if pads is None:
        return row
    count = width - 1 if most is None else min(most, width - 1)
    return [pads[0]] * count + row + [pads[1]] * count


def _join_neighbours(row: list[bytes], width: int, glue: bytes) -> Iterable[bytes]:
    return (glue.join(row[i : i + width]) for i in range(len(row) - width + 1))
