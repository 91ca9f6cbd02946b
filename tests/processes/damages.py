"""Which of a folder's files to damage."""

from pathlib import Path
from typing import get_args

from tfdist_jax.testing import DamageKind, files_in

KINDS: tuple[DamageKind, ...] = get_args(DamageKind)


def largest_of(folder: Path) -> Path:
    """Return the file with most of the arrays."""
    return max(files_in(folder), key=lambda path: path.stat().st_size)
