"""A process that outlives the launcher by a moment: when the launcher is gone, it ends the workers and what they started.

Runs by itself, with nothing but the standard library. The launcher writes each worker's process group; the end of its
input means that the launcher has ended, however that happened.
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    """Read process groups, "+pid" and "-pid", and end those that are left at the end."""
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        (groups.add if line[0] == "+" else groups.discard)(group)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
