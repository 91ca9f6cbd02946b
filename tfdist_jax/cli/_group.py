"""A group of worker processes that live and end together."""

import contextlib
import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import final

from tfdist_jax.cli._parent_death import PARENT, Reaper
from tfdist_jax.cli._relay import Relay

_POLL_S = 0.05


@final
@dataclasses.dataclass(frozen=True)
class Member:
    """What to start.

    Attributes:
        name: Such as "worker 0".
        command: The program and its arguments.
        env: What is set in its environment, besides what this process has.
        log: Its log file.
        prefixed: Whether its lines on the terminal begin with its name.
        shown: Whether its output appears there.
        heading: What its log says before its output.
    """

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    log: Path
    prefixed: bool
    shown: bool
    heading: str = ""


@final
class Group:
    """Processes, one for each member, that have been started."""

    def __init__(self, members: Sequence[Member], reaper: Reaper) -> None:
        """Start them."""
        self._reaper = reaper
        self._members = members
        self._relays = [_make_relay(member) for member in members]
        self._processes = [self._start(member, relay) for member, relay in zip(members, self._relays, strict=True)]
        self.codes: dict[int, int] = {}
        self._stopped_since: dict[int, float] = {}

    def _start(self, member: Member, relay: Relay) -> subprocess.Popen[bytes]:
        ends = relay.ends()
        try:
            process = subprocess.Popen(
                member.command,
                env={**os.environ, **member.env, PARENT: str(os.getpid())},
                stdin=subprocess.DEVNULL,
                stdout=ends[0],
                stderr=ends[1],
                start_new_session=True,
            )
        finally:
            for end in ends:
                os.close(end)
        self._reaper.add(process.pid)
        return process

    def running(self) -> list[int]:
        """Note who has ended, and return the positions of those who have not."""
        for i, process in enumerate(self._processes):
            if i not in self.codes and (code := process.poll()) is not None:
                self.codes[i] = code
                self._reaper.remove(process.pid)
        return [i for i in range(len(self._processes)) if i not in self.codes]

    @property
    def failed(self) -> list[int]:
        """The positions of those who have ended with an error, the first one first."""
        return [i for i, code in self.codes.items() if code]

    def wait(self, until: Callable[[], bool], timeout_s: float = float("inf")) -> None:
        """Wait until all have ended, or one with an error, or `until` says so, or the time is over."""
        deadline = time.monotonic() + timeout_s
        while self.running() and not until() and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def kill_frozen(self, timeout_s: float) -> list[int]:
        """End those who have been stopped for so long, as by SIGSTOP, and return their positions.

        While others run, these notice it, too; when they have ended nobody else would.
        """
        now, frozen = time.monotonic(), []
        for i in self.running():
            if not _is_stopped(self._processes[i].pid):
                self._stopped_since.pop(i, None)
            elif now - self._stopped_since.setdefault(i, now) >= timeout_s:
                self._processes[i].kill()
                frozen.append(i)
        return frozen

    def send(self, number: int) -> None:
        """Send a signal to all that run; Ctrl-C also to what they have started, as a terminal does."""
        for i in self.running():
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if number == signal.SIGINT else os.kill)(self._processes[i].pid, number)

    def stop(self, number: int, timeout_s: float, hurry: Callable[[], bool] = lambda: False) -> None:
        """Ask all to end by a signal, wait, and then end who is left.

        Args:
            number: The signal; 0 to wait only.
            timeout_s: How long they have.
            hurry: Asked while waiting; if it says so, the time is over.
        """
        if number:
            self.send(number)
            self.kill_frozen(0)  # They cannot do as they are asked.
        self.wait(hurry, timeout_s)
        self.send(signal.SIGKILL)
        self.wait(lambda: False)
        for relay in self._relays:
            relay.finish()

    def name(self, position: int) -> str:
        """Return a member's name."""
        return self._members[position].name

    def last_output(self, position: int) -> str:
        """Return the end of what a member has written."""
        return self._relays[position].tail.decode(errors="replace")

    def log(self, position: int) -> Path | None:
        """Return a member's log file; None if it does not hold everything."""
        return self._members[position].log if self._relays[position].is_logged else None


def _make_relay(member: Member) -> Relay:
    return Relay(
        member.log, name=member.name, prefixed=member.prefixed, shown=member.shown, heading=member.heading.encode()
    )


def _is_stopped(pid: int) -> bool:
    """Tell whether a child is stopped; where the system does not say, it is not."""
    if not hasattr(os, "waitid"):
        return False
    with contextlib.suppress(ChildProcessError):
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    return False
