"""Digests of a folder's files, by which damage is found: a flipped bit, a file that is cut, emptied or gone.

Each file has a digest for each MiB, by which the arrays that lie there can be named.
"""

import concurrent.futures
import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import xxhash

_BLOCK_BYTES = 1 << 20
_THREADS = 2
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


def digest_files(folder: Path, paths: Iterable[Path]) -> str:
    """Return the digests of files below a folder, as a text for `find_damage`."""
    text = json.dumps({str(path.relative_to(folder)): list(_digest(path)) for path in paths if path.is_file()})
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
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as threads:
        found = threads.map(lambda file: _compare_file(folder, file, *written[file]), written)
        return [damage for damage in found if damage is not None]


def _compare_file(folder: Path, name: str, size: int, *blocks: str) -> Damage | None:
    path = folder / name
    if not path.is_file():
        return Damage(name, GONE)
    found, *now = _digest(path)
    if found != size:
        return Damage(name, f"has {found} bytes, and {size} were written")
    changed = {i for i, (new, old) in enumerate(zip(now, blocks, strict=True)) if new != old}
    return Damage(name, CHANGED, frozenset(changed)) if changed else None


def _digest(path: Path) -> tuple[Any, ...]:
    """Return a file's number of bytes, and the digest of each block."""
    size, digests = 0, []
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK_BYTES):
            size += len(block)
            digests.append(_of(block))
    return size, *digests


def _of(data: bytes) -> str:
    return xxhash.xxh3_64_hexdigest(data)
