"""What disks, copies and other programs do to files: each kind of damage to one of a folder's files."""

import contextlib
import os
import random
from collections.abc import Iterator
from pathlib import Path

KINDS = ("flip", "cut", "empty", "gone")


@contextlib.contextmanager
def damaged(file: Path, kind: str, moments: random.Random) -> Iterator[None]:
    """Damage a file inside of the context."""
    written = file.read_bytes()
    damage(file, kind, moments)
    try:
        yield
    finally:
        file.write_bytes(written)


def damage(file: Path, kind: str, moments: random.Random) -> None:
    """Flip one of a file's bits, cut it anywhere, empty it or remove it."""
    written = bytearray(file.read_bytes())
    if kind == "gone":
        file.unlink()
    elif kind == "flip":
        written[moments.randrange(len(written))] ^= 1 << moments.randrange(8)
        file.write_bytes(written)
    else:
        os.truncate(file, moments.randrange(len(written)) if kind == "cut" else 0)


def files_of(folder: Path) -> list[Path]:
    """Return all files below a folder that hold something."""
    return sorted(path for path in Path(folder).rglob("*") if path.is_file() and path.stat().st_size)


def largest_of(folder: Path) -> Path:
    """Return the file with most of the arrays."""
    return max(files_of(folder), key=lambda path: path.stat().st_size)
