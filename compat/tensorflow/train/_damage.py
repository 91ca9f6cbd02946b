"""Damaged checkpoints: refused as TensorFlow does, or passed over in favour of the one before."""

import functools
import logging
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tfdist_jax import DataLossError as DamagedError
from tfdist_jax.compat.tensorflow._platform._errors import DataLossError
from tfdist_jax.compat.tensorflow.train import _formats

_log = logging.getLogger("tfdist_jax")


SKIPS_DAMAGED = "TFDIST_SKIP_DAMAGED"
"""Set to 0, a damaged checkpoint is an error where otherwise the one before is taken."""


def find_whole(newest_first: Iterable[str]) -> str | None:
    """Return the first checkpoint that is not damaged, and say which ones were passed over; None if there is none at all.

    Raises:
        DataLossError: If all are damaged, since a training would begin anew; or one, if none is to be passed over.
    """
    damages: list[str] = []
    for path in filter(_formats.is_saved, newest_first):
        damage = _find_damage(path)
        if damage is None:
            for each in damages:
                _warn(f"{each} Going back to {path}.")
            return path
        # Another process may have removed it meanwhile.
        damages += [damage] if _formats.is_saved(path) else []
        if damages and not skips_damaged():
            raise DataLossError(None, None, f"{damages[0]} {SKIPS_DAMAGED}=0 says not to go back to the one before.")
    if damages:
        raise DataLossError(None, None, f"{damages[0]} No other one here is whole. Remove them to begin anew.")
    return None


def skips_damaged() -> bool:
    """Whether the newest checkpoint that is whole is to be taken."""
    return os.environ.get(SKIPS_DAMAGED) != "0"


@functools.cache
def _warn(message: str) -> None:
    _log.warning("%s", message)


def reading(path: str, read: Callable[[], Any]) -> Any:
    """Return what `read` reads from a checkpoint.

    Raises:
        DataLossError: If it is damaged. It names the newest one beside it that is not.
    """
    try:
        return read()
    except DamagedError as error:
        whole = next((other for other in _others(Path(path)) if _find_damage(other) is None), None)
        remedy = "There is none beside it that is whole." if whole is None else f"{whole} is whole."
        raise DataLossError(None, None, f"{error} {remedy}") from error


def _others(path: Path) -> list[Path]:
    """Return the checkpoints beside one, the newest first."""
    numbered = re.compile(re.escape(path.name.rpartition("-")[0]) + r"-(\d+)")
    beside = {other.with_name(other.name.removesuffix(".index")) for other in path.parent.iterdir()}
    found = {int(match[1]): other for other in beside - {path} if (match := numbered.fullmatch(other.name))}
    return [found[number] for number in sorted(found, reverse=True) if _formats.is_saved(found[number])]


def _find_damage(path: str | Path) -> str | None:
    try:
        _formats.must_be_whole(path)
    except (DamagedError, FileNotFoundError) as error:
        return str(error)
    return None
