"""Serialized examples as columns: the values of each feature in all examples, one array.

Examples that one program has written hold the same keys in the same order. So all of them are read side by side: what stands at
their next entry is compared with the first example's, and the values behind it become an array at once. Those that are laid out in
another way are read in further rounds, and in the end one by one by the protocol buffers' own library.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

import numpy as np
from google.protobuf.message import DecodeError

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow.io import _messages, _varints

# What a feature holds: the number of its list's field, and NumPy's type of the values.
KINDS = {"string": 1, "float32": 2, "int64": 3}
NAMES = {1: "string", 2: "float", 3: "int64"}
_LISTS = {1: "bytes_list", 2: "float_list", 3: "int64_list"}
_TYPES: dict[int, Any] = {1: object, 2: np.float32, 3: np.int64}

# Rounds side by side, and the fewest examples that one is worth.
_MOST_ROUNDS, _FEWEST = 8, 8
# The most bytes of a number; each but the last has the highest bit.
_VARINT, _LOW, _MORE = 10, 0x7F, 0x80


@final
@dataclasses.dataclass(frozen=True)
class Column:
    """A feature in all examples.

    Attributes:
        kinds: What each example's feature is, `[N]`; 0 where it is not there, or holds nothing.
        lengths: How many values each example has, `[N]`.
        values: The values of the examples that have some, one behind the other.
    """

    kinds: np.ndarray
    lengths: np.ndarray
    values: np.ndarray


def read_columns(records: Sequence[bytes], kinds: Mapping[str, int]) -> dict[str, Column]:
    """Return the columns of some features.

    Args:
        records: Serialized `tf.train.Example`s.
        kinds: The features' keys, and the kind whose values are wanted; there are no values where an example has another kind.

    Raises:
        InvalidArgumentError: If a record is no example.
    """
    wanted = {key.encode(): kind for key, kind in kinds.items()}
    parts: dict[bytes, list[_Part]] = {key: [] for key in wanted}
    rows = np.arange(len(records))
    for _ in range(_MOST_ROUNDS):
        if len(rows) < _FEWEST:
            break
        left = _read_alike(records, rows, wanted, parts)
        if left is rows:
            break
        rows = left
    for row in rows.tolist():
        _read_one(records[row], row, wanted, parts)
    return {key: _joined(parts[key.encode()], kind, len(records)) for key, kind in kinds.items()}


@final
@dataclasses.dataclass(frozen=True)
class _Part:
    """The values of some examples, `rows`, which rise."""

    rows: np.ndarray
    kind: int
    lengths: np.ndarray
    values: Any


def _joined(parts: Sequence[_Part], kind: int, count: int) -> Column:
    if len(parts) == 1 and len(parts[0].rows) == count:
        part = parts[0]
        values = np.asarray(part.values if part.kind == kind else (), _TYPES[kind])
        return Column(np.full(count, part.kind, np.int8), part.lengths, values)
    kinds, lengths = np.zeros(count, np.int8), np.zeros(count, np.int64)
    for part in parts:
        kinds[part.rows], lengths[part.rows] = part.kind, part.lengths
    having = [part for part in parts if part.kind == kind]
    if not having:
        return Column(kinds, lengths, np.empty(0, _TYPES[kind]))
    values = np.concatenate([np.asarray(part.values, _TYPES[kind]) for part in having])
    if len(having) > 1:
        rows = np.concatenate([np.repeat(part.rows, part.lengths) for part in having])
        values = values[np.argsort(rows, kind="stable")]
    return Column(kinds, lengths, values)


def _read_one(record: bytes, row: int, wanted: Mapping[bytes, int], parts: Mapping[bytes, list[_Part]]) -> None:
    try:
        features = _messages.Example.FromString(record).features.feature
    except DecodeError:
        raise unreadable(record) from None
    for key, kind in wanted.items():
        if key.decode() in features:
            found = read_feature(features[key.decode()], kind)
            parts[key].append(_Part(np.array([row]), found[0], np.array([found[1]]), found[2]))


def unreadable(record: bytes) -> Exception:
    """Return the error for what is no example."""
    return invalid(f"Could not parse example input, value: '{record[:200].decode(errors='backslashreplace')}'")


def read_feature(feature: Any, kind: int) -> tuple[int, int, np.ndarray]:
    """Return a feature's kind, 0 if it holds nothing, how many values it has, and the values if it is of the kind that is wanted."""
    name = feature.WhichOneof("kind")
    found = next((number for number, list_name in _LISTS.items() if list_name == name), 0)
    values = getattr(feature, name).value if name else ()
    array = np.empty(len(values) if found == kind else 0, _TYPES[kind])
    if found == kind:
        array[:] = values
    return found, len(values), array


def _read_alike(
    records: Sequence[bytes], rows: np.ndarray, wanted: Mapping[bytes, int], parts: Mapping[bytes, list[_Part]]
) -> np.ndarray:
    """Add the values of the examples that are laid out like the first one; return the rows of the others, `rows` itself if it is odd."""
    chosen = records if len(rows) == len(records) else [records[row] for row in rows.tolist()]
    lengths = np.fromiter(map(len, chosen), np.int64, len(chosen))
    ends = np.cumsum(lengths)
    # Zeros behind: a look at what would come next stays within.
    data = np.frombuffer(b"".join([*chosen, bytes(int(lengths[0]) + _VARINT)]), np.uint8)
    walked = (_walk_equal if (lengths == lengths[0]).all() else _walk)(data, ends - lengths, ends)
    if walked is None:
        return rows
    alike, entries = walked
    found = {key: entry for key, entry in entries.items() if key in wanted}
    if not alike.all():
        found = {key: entry.of(alike) for key, entry in found.items()}
    decoded = _decode(data, found, wanted)
    if decoded is None:
        return rows
    own = rows[alike]
    for key, (counts, values) in decoded.items():
        parts[key].append(_Part(own, found[key].kind, counts, values))
    return rows[~alike]


@final
@dataclasses.dataclass(frozen=True)
class _Layout:
    """How an entry lies in one example.

    Attributes:
        key: The feature's.
        kind: What it holds.
        begin: Where the entry begins.
        numbers: Where the sizes of the entry, of the feature, of its list and of the values begin and end.
        start: Where the values begin.
        end: Where they end, and the entry with them.
    """

    key: bytes
    kind: int
    begin: int
    numbers: list[tuple[int, int]]
    start: int
    end: int

    def compare(self, first: bytes, data: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return how many bytes the values have in the examples whose entries begin `at` these places, and which are laid out so."""
        places = [(start - self.begin, end - self.begin) for start, end in self.numbers]
        header = first[self.begin : self.start]
        is_short = all(end - start == 1 for start, end in places)
        return (_compare_short if is_short else _compare)(header, places, data, at)


def _compare_short(
    header: bytes, places: Sequence[tuple[int, int]], data: np.ndarray, at: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Compare eight bytes at a time: where all sizes are below 128, they differ from the first example's by one number."""
    numbers = tuple(start for start, _ in places)
    found = _look(data, at, -(-len(header) // 8) * 8)
    sizes = found[:, numbers[-1]].astype(np.uint64)
    change = sizes - np.uint64(header[numbers[-1]])
    # The first size, which is the largest, has to be below 128 too.
    wrong = (sizes + np.uint64(header[numbers[0]] - header[numbers[-1]])) >> np.uint64(7)
    for words, (usual, inside, step) in zip(found.view("<u8").T, _find_words(header, numbers), strict=True):
        differing = change * step
        differing += usual
        differing ^= words
        differing &= inside
        wrong |= differing
    return sizes.view(np.int64), wrong == 0


# The keys of a file's examples come again with each batch, and with few sizes.
@functools.lru_cache(4096)
def _find_words(header: bytes, numbers: Sequence[int]) -> list[tuple[np.uint64, np.uint64, np.uint64]]:
    """Return for each eight bytes of an entry's header: these bytes, ones in all bits of each, and a one in each that is a size."""
    is_size = bytes(i in numbers for i in range(len(header)))
    padded = [part.ljust(-(-len(header) // 8) * 8, b"\0") for part in (header, b"\xff" * len(header), is_size)]
    return list(zip(*(np.frombuffer(part, "<u8") for part in padded), strict=True))


def _compare(
    header: bytes, places: Sequence[tuple[int, int]], data: np.ndarray, at: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    mask = np.full(len(header), 0xFF, np.uint8)
    for start, end in places:
        mask[start:end] = _MORE
    found = _look(data, at, len(header))
    alike = ((found & mask) == (np.frombuffer(header, np.uint8) & mask)).all(1)
    ends = [end + _number(found, start, end) for start, end in places]
    for end in ends[1:]:
        alike &= end == ends[0]
    return ends[0] - len(header), alike


@final
@dataclasses.dataclass(frozen=True)
class _Entry:
    """An entry in all examples: where its values begin, and how many bytes they have."""

    kind: int
    starts: np.ndarray
    sizes: np.ndarray

    def of(self, alike: np.ndarray) -> "_Entry":
        """Return that of some examples."""
        return _Entry(self.kind, self.starts[alike], self.sizes[alike])


def _walk(data: np.ndarray, at: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, dict[bytes, _Entry]] | None:
    """Return which examples are laid out like the first one, and the entries by their keys; None if that one is odd."""
    first = data[: ends[0]].tobytes()
    layouts = _find_layouts(first)
    if layouts is None:
        return None
    width = layouts[0].begin
    heads = _look(data, at, width)
    alike = (heads[:, 0] == 0x0A) & ((heads[:, 1:] & _MORE) == (np.frombuffer(first[1:width], np.uint8) & _MORE)).all(1)
    alike &= at + width + _number(heads, 1, width) == ends
    at = at + width
    entries = {}
    for layout in layouts:
        sizes, is_alike = layout.compare(first, data, at)
        alike &= is_alike
        at = at + (layout.start - layout.begin)
        entries[layout.key] = _Entry(layout.kind, at, sizes)
        at = at + sizes
    return alike & (at == ends), entries


def _walk_equal(data: np.ndarray, at: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, dict[bytes, _Entry]] | None:
    """Do what `_walk` does for examples of one length: where all values have the same place, all else is the same."""
    length = int(ends[0])
    layouts = _find_layouts(data[:length].tobytes())
    if layouts is None:
        return None
    mask = np.full(length, 0xFF, np.uint8)
    for layout in layouts:
        mask[layout.start : layout.end] = 0
    table = data[: ends[-1]].reshape(-1, length)
    if ((table ^ table[0]) & mask).any():
        return _walk(data, at, ends)
    sizes = {layout.key: np.full(len(at), layout.end - layout.start) for layout in layouts}
    entries = {layout.key: _Entry(layout.kind, at + layout.start, sizes[layout.key]) for layout in layouts}
    return np.ones(len(at), bool), entries


def _find_layouts(example: bytes) -> list[_Layout] | None:
    """Return how an example's entries lie; None for what may be written so, but what no program is known to write."""
    if not example or example[0] != 0x0A:
        return None
    try:
        size, at = _varints.decode(example, 1)
        layouts = []
        while at < len(example):
            layouts.append(_find_layout(example, at))
            at = layouts[-1].end
    except (IndexError, ValueError):
        return None
    is_usual = layouts and layouts[0].begin + size == at == len(example)
    return layouts if is_usual and len({layout.key for layout in layouts}) == len(layouts) else None


def _find_layout(example: bytes, at: int) -> _Layout:
    places, sizes = [], []

    def take(start: int, tags: bytes) -> int:
        if example[start] not in tags:
            raise ValueError("an entry that is laid out in another way")
        size, end = _varints.decode(example, start + 1)
        places.append((start + 1, end))
        sizes.append(end + size)
        return end

    begin = take(at, b"\n")
    key_at = take(begin, b"\n")
    value_at = sizes[1]
    kind = take(value_at, b"\x12")
    content = take(kind, b"\n\x12\x1a")
    start = take(content, b"\n")
    if len({sizes[0], *sizes[2:]}) > 1:
        raise ValueError("an entry that is laid out in another way")
    del places[1]  # Keys are the same, with their sizes.
    return _Layout(example[key_at:value_at], example[kind] >> 3, at, places, start, sizes[0])


def _number(heads: np.ndarray, start: int, end: int) -> np.ndarray:
    """Return the numbers in some columns of bytes, the lowest bits first."""
    value = (heads[:, start] & _LOW).astype(np.int64)
    for i in range(start + 1, end):
        value |= (heads[:, i] & _LOW).astype(np.int64) << 7 * (i - start)
    return value


def _look(data: np.ndarray, at: np.ndarray, width: int) -> np.ndarray:
    """Return the bytes from each place on, `[N, width]`."""
    # Items of `width` bytes, one at each byte: NumPy copies an item at once.
    count = len(data) - width + 1
    windows = np.ndarray((count,), np.dtype((np.void, width)), data, strides=(1,))
    return windows[np.minimum(at, count - 1)].view(np.uint8).reshape(-1, width)


def _decode(
    data: np.ndarray, entries: Mapping[bytes, _Entry], wanted: Mapping[bytes, int]
) -> dict[bytes, tuple[np.ndarray, Any]] | None:
    """Return for each entry how many values each example has, and the values if they are wanted; None if some are damaged."""
    found = _decode_integers(data, {key: entry for key, entry in entries.items() if entry.kind == KINDS["int64"]})
    if found is None:
        return None
    for key, entry in entries.items():
        if entry.kind == KINDS["string"]:
            found[key] = np.ones(len(entry.starts), np.int64), _decode_strings(data, entry) if wanted[key] == 1 else ()
        elif entry.kind == KINDS["float32"]:
            # Not `%` and `//`, which take ten times as long.
            if (entry.sizes & 3).any():
                return None
            found[key] = entry.sizes >> 2, _gather(data, entry.starts, entry.sizes).view("<f4")
    return found


def _decode_strings(data: np.ndarray, entry: _Entry) -> np.ndarray:
    memory = data.data
    values = np.empty(len(entry.starts), object)
    values[:] = [
        bytes(memory[start : start + size])
        for start, size in zip(entry.starts.tolist(), entry.sizes.tolist(), strict=True)
    ]
    return values


def _decode_integers(data: np.ndarray, entries: Mapping[bytes, _Entry]) -> dict[bytes, tuple[np.ndarray, Any]] | None:
    """Return numbers and values of several entries: fewer and larger operations than for each on its own."""
    found: dict[bytes, tuple[np.ndarray, Any]] = {}
    short = {key: entry for key, entry in entries.items() if entry.sizes.min() > 0 and entry.sizes.max() <= 8}
    values = _read_single_varints(data, *_placed(short.values())) if short else None
    if values is not None:
        rows = values.reshape(len(short), -1)
        found |= {key: (np.ones(len(row), np.int64), row) for key, row in zip(short, rows, strict=True)}
    rest = {key: entry for key, entry in entries.items() if key not in found}
    if rest:
        starts, sizes = _placed(rest.values())
        decoded = _read_varints(_gather(data, starts, sizes), sizes)
        if decoded is None:
            return None
        counts = decoded[0].reshape(len(rest), -1)
        found |= zip(rest, zip(counts, np.split(decoded[1], np.cumsum(counts.sum(1))[:-1]), strict=True), strict=True)
    return found


def _placed(entries: Iterable[_Entry]) -> tuple[np.ndarray, np.ndarray]:
    """Return where the values of entries begin, one entry behind the other, and their sizes."""
    entries = list(entries)
    return np.concatenate([entry.starts for entry in entries]), np.concatenate([entry.sizes for entry in entries])


# By their sizes in bytes: a number's bits, and the bits that say that more bytes follow.
_BITS = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
_MORE_BITS = _BITS & np.uint64(0x8080808080808080)
_FOLLOWED = np.concatenate([[np.uint64(0)], _MORE_BITS[:-1]])


def _read_single_varints(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray | None:
    """Return the numbers at places of up to eight bytes that hold one each; None if some hold more, or are damaged."""
    words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))[starts]
    if ((words & _MORE_BITS.take(sizes)) != _FOLLOWED.take(sizes)).any():
        return None
    words &= _BITS.take(sizes)
    # Seven bits of each byte, then fourteen of two, then twenty-eight of four.
    for low, width in ((0x007F007F007F007F, 8), (0x00003FFF00003FFF, 16), (0x000000000FFFFFFF, 32)):
        high = words >> np.uint64(width)
        high &= np.uint64(low)
        high <<= np.uint64(width // 8 * 7)
        words &= np.uint64(low)
        words |= high
    return words.view(np.int64)


def _gather(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the bytes of all places, one behind the other."""
    if (sizes == sizes[0]).all():
        return np.ascontiguousarray(_look(data, starts, int(sizes[0]))).ravel() if sizes[0] else data[:0]
    before = np.cumsum(sizes) - sizes
    return data[np.repeat(starts - before, sizes) + np.arange(int(sizes.sum()))]


def _read_varints(raw: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    is_last = raw < _MORE
    behind = np.concatenate([[0], np.cumsum(is_last)])
    ends = np.cumsum(sizes)
    if not is_last[ends[sizes > 0] - 1].all():
        return None
    last = np.flatnonzero(is_last)
    first = np.concatenate([[0], last[:-1] + 1]) if len(last) else last
    widths = last - first + 1
    values = np.zeros(len(last), np.uint64)
    for i in range(int(widths.max(initial=0))):
        if i == _VARINT:
            return None
        having = slice(None) if i == 0 else widths > i
        values[having] |= (raw[first[having] + i] & _LOW).astype(np.uint64) << np.uint64(7 * i)
    return behind[ends] - behind[ends - sizes], values.view(np.int64)
