"""What disks, copies and other programs do to files; and disks that are full."""

import contextlib
import os
import random
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Self, final, get_args

DamageKind = Literal["flip", "truncate", "empty", "remove"]


@final
class Damage:
    """A file that has been damaged. As a context it is repaired at the end.

    Attributes:
        file: Which.
        kind: "flip" for one bit, "truncate" for a shorter file, "empty", or "remove".
    """

    def __init__(self, file: Path, kind: DamageKind, chance: random.Random) -> None:
        """Damage a file.

        Args:
            file: It has to hold something.
            kind: How.
            chance: Chooses the bit, or the place.

        Raises:
            ValueError: If the file is empty, or there is no such kind.
        """
        if kind not in get_args(DamageKind):
            raise ValueError(f"A file can be damaged by one of {get_args(DamageKind)}, not {kind!r}.")
        self.file, self.kind = file, kind
        self._written = file.read_bytes()
        if not self._written:
            raise ValueError(f"{file} is empty: there is nothing to damage.")
        self._do(chance)

    def _do(self, chance: random.Random) -> None:
        if self.kind == "remove":
            self.file.unlink()
        elif self.kind == "flip":
            self.place, bit = chance.randrange(len(self._written)), chance.randrange(8)
            changed = bytearray(self._written)
            changed[self.place] ^= 1 << bit
            self.file.write_bytes(changed)
        else:
            os.truncate(self.file, chance.randrange(len(self._written)) if self.kind == "truncate" else 0)

    def repair(self) -> None:
        """Write again what was in the file."""
        self.file.write_bytes(self._written)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.repair()

    def __str__(self) -> str:
        return f"{self.kind} {self.file}"


def files_in(folder: str | os.PathLike[str]) -> list[Path]:
    """Return all files below a folder that hold something, in order; a file is a folder of its own.

    Raises:
        FileNotFoundError: If there are none.
    """
    path = Path(folder)
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    found = [file for file in files if file.is_file() and file.stat().st_size]
    if not found:
        raise FileNotFoundError(f"No file below {path} holds anything.")
    return found


@contextlib.contextmanager
def full_disk(free_bytes: int) -> Iterator[None]:
    """Let no file of this process grow beyond some bytes, as if the disk had no more.

    Writing more is an OSError, "File too large" in place of "No space left on device"; what fits is written before, as on a full disk.
    What is printed counts as well where it goes to a file, as it does while pytest captures it.

    Args:
        free_bytes: How large a file may be.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (free_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
