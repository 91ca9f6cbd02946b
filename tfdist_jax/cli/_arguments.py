"""Types of command-line arguments."""

import argparse


def positive_int(text: str) -> int:
    """Return a number, 1 or more."""
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"needs a number, 1 or more, got {text!r}")
    return count


def positive_seconds(text: str) -> float:
    """Return a number of seconds above 0."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"needs a number of seconds above 0, got {text!r}")
    return seconds
