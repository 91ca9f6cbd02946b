"""What the launcher says of processes that have ended."""

import signal
import sys

from tfdist_jax.cli._group import Group
from tfdist_jax.cli._messages import say

# How many lines of a failed worker's log are shown, and how much of each.
_TAIL = 20
_WIDTH = 500


def say_failed(group: Group, position: int) -> None:
    """Say which process has failed, how, and what it has said last."""
    code = group.codes[position]
    name = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    log = group.log(position)
    say(f"{group.name(position)} has ended with {name}. The end of {log or 'its output'}:")
    sys.stderr.write(_indent(group.last_output(position)))


def exit_code(code: int) -> int:
    """Return the exit code for a process's, which is negative if a signal has ended it."""
    return 128 - code if code < 0 else code


def _indent(output: str) -> str:
    # Without the addresses that JAX prints when it aborts.
    lines = [line for line in output.splitlines() if not line.startswith("    @ ")]
    return "".join(f"  {line[:_WIDTH]}\n" for line in lines[-_TAIL:])
