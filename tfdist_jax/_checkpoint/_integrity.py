"""Whether a folder of saved arrays holds what was written, and if not, which arrays are affected."""

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tfdist_jax._checkpoint import _array_files
from tfdist_jax._checkpoint._digests import CHANGED, GONE, Damage, compare_files, digest_files, files_below
from tfdist_jax._errors import DataLossError

ARRAYS, ABOUT = "arrays", "about"
ABOUT_FILE = "about.json"
HAS_DIGESTS = "digests"  # In that file: folders of older versions have none.
_DIGESTS_FILE = "digests.json"


def write_own_digests(folder: Path, process: int) -> Path:
    """Write the digests of the files that a process has written for itself alone, so that no other one has to read them."""
    path, above = _own_digests(folder, process), _files_of_process(process)
    path.write_text(digest_files(folder, [f"{above}{name}" for name in files_below(folder / above)]))
    return path


def write_digests(folder: Path) -> Path:
    """Write the digests of all files that have none yet."""
    path, names = folder / ABOUT / _DIGESTS_FILE, files_below(folder)
    own = _own_digests(folder, r"(\d+)").relative_to(folder)
    done = tuple(_files_of_process(int(found[1])) for name in names if (found := re.fullmatch(str(own), name)))
    path.write_text(digest_files(folder, [name for name in names if not name.startswith(done)]))
    return path


def _files_of_process(process: int) -> str:
    return f"{ARRAYS}/{_array_files.folder_of_process(process)}"


def _own_digests(folder: Path, process: int | str) -> Path:
    digests = folder / ABOUT / _DIGESTS_FILE
    return digests.with_stem(f"{digests.stem}{process}")


# What was found, and what the files were like then.
_found: dict[Path, tuple[Any, str | None]] = {}


def must_be_whole(folder: Path) -> None:
    """Compare all files with their digests, unless that was done and none has changed since.

    Raises:
        DataLossError: If one is gone, or does not hold what was written; it names the files and the arrays in them.
    """
    stamps = _stamps(folder)  # Before: what comes in its place meanwhile is not compared.
    damage = find_damage(folder)
    _found[folder] = stamps, damage
    if damage is not None:
        raise DataLossError(damage)


def about_must_be_whole(folder: Path) -> None:
    """Compare the small files, that say what is in the others, with their digests.

    Raises:
        DataLossError: If one is damaged.
    """
    damages = _compare(folder, lambda files: [file for file in files if file.startswith(f"{ABOUT}/")])
    if damages:
        raise DataLossError(_describe(folder, damages))


def find_damage(folder: Path, share: int = 0, shares: int = 1) -> str | None:
    """Say what is wrong with the files; None if nothing is, or if they are older than digests.

    Args:
        folder: The folder.
        share: Which of the shares to look at.
        shares: Over how many processes the work is shared out.

    Raises:
        FileNotFoundError: If there is no such folder, or no longer.
    """
    if folder in _found and _found[folder][0] == _stamps(folder):
        return _found[folder][1]
    damages = _compare(folder, lambda files: files[share::shares])
    return _describe(folder, damages) if damages else None


def note(folder: Path, damage: str | None = None) -> None:
    """Spare comparing the files again, as they are now."""
    _found[folder] = _stamps(folder), damage


def has_digests(folder: Path) -> bool:
    """Whether damage of the arrays can be found: older versions have written folders without digests."""
    return (folder / ABOUT / _DIGESTS_FILE).exists()


def _stamps(folder: Path) -> list[Any]:
    return [(name, _stamp(f"{folder}/{name}")) for name in files_below(folder)]


def _compare(folder: Path, choose: Callable[[Sequence[str]], Sequence[str]]) -> list[Damage]:
    digests = folder / ABOUT / _DIGESTS_FILE
    while True:
        stamp = _stamp(digests)
        damages = (
            _damages_without_digests(folder)
            if stamp is None
            else compare_files(folder, digests, _own_digests(folder, "*").name, choose)
        )
        # Another process may have put a new folder in this one's place meanwhile.
        if not damages or _stamp(digests) == stamp:
            return damages


def _stamp(file: str | Path) -> tuple[int, ...] | None:
    try:
        status = os.stat(file)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _damages_without_digests(folder: Path) -> list[Damage]:
    if not folder.exists():
        raise FileNotFoundError(f"There is no checkpoint {folder}.")
    name = f"{ABOUT}/{ABOUT_FILE}"
    try:
        about = json.loads((folder / name).read_text())
    except FileNotFoundError:
        return [Damage(name, GONE)]
    except ValueError:
        return [Damage(name, CHANGED)]
    if not isinstance(about, dict):
        return [Damage(name, CHANGED)]
    return [Damage(f"{ABOUT}/{_DIGESTS_FILE}", GONE)] if about.get(HAS_DIGESTS) else []


def _describe(folder: Path, damages: Sequence[Damage]) -> str:
    return f"The checkpoint {folder} is damaged: {_list(damages)}. {_affected(folder, damages)}".rstrip()


def _affected(folder: Path, damages: Iterable[Damage]) -> str:
    """Say which arrays may have wrong values."""
    if any(damage.file.startswith(f"{ABOUT}/") for damage in damages):
        return "It says what is in the other files."
    numbers = _array_files.find_in_damaged(folder / ARRAYS, f"{ARRAYS}/", damages)
    if numbers is None:
        return "It says where the arrays are, or holds several."
    try:
        names = sorted(json.loads((folder / ABOUT / ABOUT_FILE).read_text())["arrays"])
    except (OSError, ValueError, KeyError):
        return ""  # Another share of the work finds that.
    arrays = _list([repr(names[int(number)]) for number in sorted(numbers, key=int)])
    return f"The arrays in it are {arrays}." if arrays else ""


def _list(things: Sequence[Any], most: int = 5) -> str:
    shown = ", ".join(map(str, things[:most]))
    return f"{shown} and {len(things) - most} more" if len(things) > most else shown
