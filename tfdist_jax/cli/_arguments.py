"""Types of command-line arguments, and the option that `run` and `launch` share."""

import argparse
import math
from pathlib import Path

from tfdist_jax import _compilation_cache


def add_compilation_cache(parser: argparse.ArgumentParser) -> None:
    """Add the option that says where compiled programs are kept."""
    parser.add_argument(
        "--compilation-cache",
        type=_folder_or_off,
        metavar="DIR",
        help=f"where compiled programs are kept for later runs, or {_compilation_cache.OFF!r} "
        f"(default: {_compilation_cache.VARIABLE}, else ~/.cache/tfdist_jax/programs)",
    )


def _folder_or_off(text: str) -> str:
    """Return a folder, also for processes that start elsewhere, or what stands for none."""
    if not text:
        raise argparse.ArgumentTypeError(f"needs a folder, or {_compilation_cache.OFF!r}, got nothing")
    return text if text == _compilation_cache.OFF else str(Path(text).absolute())


def positive_int(text: str) -> int:
    """Return a number, 1 or more."""
    return _int_from(1, text)


def not_negative_int(text: str) -> int:
    """Return a number, 0 or more."""
    return _int_from(0, text)


def _int_from(least: int, text: str) -> int:
    try:
        count = int(text)
    except ValueError:
        count = least - 1
    if count < least:
        raise argparse.ArgumentTypeError(f"needs a number, {least} or more, got {text!r}")
    return count


def positive_seconds(text: str) -> float:
    """Return a number of seconds above 0."""
    seconds = maybe_endless(text)
    if math.isinf(seconds):
        raise argparse.ArgumentTypeError(f"needs a time that has an end, got {text!r}")
    return seconds


def maybe_endless(text: str) -> float:
    """Return a number of seconds above 0; "inf" is for ever."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"needs a number of seconds above 0, got {text!r}")
    return seconds
