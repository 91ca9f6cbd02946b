"""What the launcher says of processes that have ended."""

import signal
import sys
from pathlib import Path

from tfdist_jax.cli._group import Group

# How many lines of a failed worker's log are shown, and how much of each.
_TAIL = 20
_WIDTH = 500


def say(message: str) -> None:
    """Tell the user something."""
    print(f"tfdist-jax launch: {message}", file=sys.stderr, flush=True)


def say_failed(group: Group, position: int) -> None:
    """Say which process has failed, how, and what it has said last."""
    code = group.codes[position]
    name = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    say(f"{group.name(position)} has ended with {name}. The end of {group.log(position)}:")
    sys.stderr.write(_tail(group.log(position)))


def exit_code(code: int) -> int:
    """Return the exit code for a process's, which is negative if a signal has ended it."""
    return 128 - code if code < 0 else code


def _tail(log: Path) -> str:
    # Without the addresses that JAX prints when it aborts.
    lines = [line for line in log.read_text(errors="replace").splitlines() if not line.startswith("    @ ")]
    return "".join(f"  {line[:_WIDTH]}\n" for line in lines[-_TAIL:])
