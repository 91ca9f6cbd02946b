"""Digests of a folder's files, by which damage is found: a flipped bit, a file that is cut, emptied or gone.

Each file has a digest for each MiB, by which the arrays that lie there can be named.
"""

import concurrent.futures
import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import xxhash

_BLOCK_BYTES = 1 << 20
_THREADS, _WORTH_THREADS_BYTES = 2, 8 << 20
CHANGED, GONE = "does not hold what was written", "is gone"


@final
@dataclasses.dataclass(frozen=True)
class Damage:
    """What is wrong with a file.

    Attributes:
        file: Its path below the folder.
        what: The end of a sentence about it.
        blocks: Which MiB do not hold what was written; None if that may be all.
    """

    file: str
    what: str
    blocks: frozenset[int] | None = None

    def reaches(self, offset: int, length: int) -> bool:
        """Whether some of the bytes from `offset` on may be damaged."""
        blocks = range(offset // _BLOCK_BYTES, (offset + length - 1) // _BLOCK_BYTES + 1)
        return self.blocks is None or not self.blocks.isdisjoint(blocks)

    def __str__(self) -> str:
        return f"{self.file} {self.what}"


def files_below(folder: Path) -> list[str]:
    """Return the names of all files below a folder, as paths from there; several times as fast as `rglob`."""
    start = len(f"{folder}/")
    return sorted(os.path.join(root, name)[start:] for root, _, names in os.walk(folder) for name in names)


def digest_files(folder: Path, names: Iterable[str]) -> str:
    """Return the digests of files below a folder, as a text for `compare_files`."""
    text = json.dumps({name: list(_digest(f"{folder}/{name}")) for name in names})
    return f"{_of(text.encode())}\n{text}"


def compare_files(
    folder: Path, digests: Path, others: str, choose: Callable[[Sequence[str]], Sequence[str]]
) -> list[Damage]:
    """Compare files with their digests.

    Args:
        folder: The folder.
        digests: A file in it that holds what `digest_files` has returned.
        others: A pattern for names of more such files, which are among those that it names.
        choose: Which of the files to compare, of the names of all; those with digests always are.
    """
    written, damages = _read(folder, digests)
    more = [file for file in written if Path(file).match(others)]
    damages += _compare(folder, {file: written.pop(file) for file in more})
    for file in {*more} - {damage.file for damage in damages}:
        own, wrong = _read(folder, folder / file)
        written |= own
        damages += wrong
    chosen = choose(sorted(written))
    return damages + _compare(folder, {file: written[file] for file in chosen})


def _read(folder: Path, digests: Path) -> tuple[dict[str, Any], list[Damage]]:
    try:
        digest, _, text = digests.read_text(errors="replace").partition("\n")
    except FileNotFoundError:
        return {}, [Damage(str(digests.relative_to(folder)), GONE)]
    if digest != _of(text.encode()):
        return {}, [Damage(str(digests.relative_to(folder)), CHANGED)]
    return json.loads(text), []


def _compare(folder: Path, written: Mapping[str, Any]) -> list[Damage]:
    compare = lambda file: _compare_file(folder, file, *written[file])
    if sum(size for size, *_ in written.values()) < _WORTH_THREADS_BYTES:
        return [damage for damage in map(compare, written) if damage is not None]
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as threads:
        return [damage for damage in threads.map(compare, written) if damage is not None]


def _compare_file(folder: Path, name: str, size: int, *blocks: str) -> Damage | None:
    try:
        found, *now = _digest(f"{folder}/{name}")
    except (FileNotFoundError, IsADirectoryError):
        return Damage(name, GONE)
    if found != size:
        return Damage(name, f"has {found} bytes, and {size} were written")
    changed = {i for i, (new, old) in enumerate(zip(now, blocks, strict=True)) if new != old}
    return Damage(name, CHANGED, frozenset(changed)) if changed else None


def _digest(path: str) -> tuple[Any, ...]:
    """Return a file's number of bytes, and the digest of each block."""
    size, digests = 0, []
    with open(path, "rb", buffering=0) as file:
        while block := file.read(_BLOCK_BYTES):
            size += len(block)
            digests.append(_of(block))
    return size, *digests


def _of(data: bytes) -> str:
    return xxhash.xxh3_64_hexdigest(data)
